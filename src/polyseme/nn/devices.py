"""Where networks are trained: the processor, or an accelerator that torch knows."""

from __future__ import annotations

from polyseme._validation import InputError


def check_device(device: object, *, owner: str) -> str:
    """Give the name of a device that is there; raise an `InputError` otherwise.

    Parameters
    ----------
    device : str
        As torch names them: "cpu", "cuda", "cuda:1", "mps".
    owner : str
        The class it was given to.
    """
    if device == "cpu":
        return "cpu"
    import torch

    try:
        torch.zeros(1, device=torch.device(str(device))).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        # torch says the same thing in several ways, one of them an assertion.
        raise InputError(
            f"`device` of `{owner}` is {device!r}, which torch cannot use here; 'cpu' always works."
        ) from error
    return str(device)
