"""The commands for media files: extract features, tag files, and review the suggested tags."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from polyseme.base.text import counted
from polyseme.cli.app import FILES, EngineName, Kind, LabelKind, command, resumable
from polyseme.cli.app import refuse as raise_error
from polyseme.cli.models import load_default_tagger, readable_record
from polyseme.cli.output import Form, emit, for_people, say, summarize_verdicts

if TYPE_CHECKING:
    from polyseme.media import MediaFeatures
    from polyseme.media.extraction import Summary

_MOST_REASONS = 20  # that are printed, why files were skipped


@command(FILES)
def extract(
    kind: Kind,
    folder: Path,
    out: Path,
    depth: Literal["pre-logit", "pooled", "convolution", "logits"] = "pre-logit",
    size: int | None = None,
    framing: Literal["stretch", "crop", "pad"] = "stretch",
    max_seconds: float = 600.0,
    max_words: int = 5000,
    text_column: str = "text",
    tags_column: str | None = None,
    delimiter: str | None = None,
    network: str | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    engine: EngineName = "local",
    address: str | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> None:
    """Turn a folder of media, or texts of a table, into numbers. Interrupted? It goes on."""
    from polyseme.base.validation import first_few
    from polyseme.batch import open_engine
    from polyseme.media import extractor_class

    options: dict[str, Any] = {
        "depth": depth,
        "size": size,
        "framing": framing,
        "max_seconds": max_seconds,
        "max_words": max_words,
        "network": network,
        "weights": weights,
    }
    extractor_type = extractor_class(kind)
    parameters = _supported_options(extractor_type, options)
    if network is None:
        usual_network = extractor_type.usual().get_params().get("network")
        if usual_network is not None:
            parameters["network"] = usual_network
    elif network == "none":
        parameters["network"] = None
    extractor = extractor_type(n_jobs=workers, device=device, **parameters)
    trained_tags = extractor.trained_tags()
    if trained_tags:
        listed = first_few(trained_tags, most=3)
        say(
            f"{network} was trained on {len(trained_tags)} tags ({listed}): it knows such a tag "
            "even if no item here carries it; extraction.json lists them all"
        )
    table_options = {
        "text_column": text_column,
        "tags_column": tags_column,
        "delimiter": delimiter,
    }
    with resumable(), open_engine(engine, address, workers, say) as ray_engine:
        summary = extract_and_report(folder, out, extractor, ray_engine, table_options)
    typer.echo(str(out))
    if strict and (summary.skipped or summary.unread):
        raise typer.Exit(1)


def _supported_options(extractor: type[MediaFeatures], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, by name, that an extractor has a parameter for and that are not None.

    Others are ignored, as they may be defaults; a network or weights are never given by chance.
    """
    parameters = inspect.signature(extractor).parameters
    if options["weights"] is not None and "weights" not in parameters:
        raise_error("`--weights` is for networks that look at pictures or read texts.")
    if options["network"] is not None and "network" not in parameters:
        raise_error(f"There is no network for {extractor.kind} files; leave out `--network`.")
    supported_options: dict[str, Any] = {}
    for name, value in options.items():
        if name in parameters and value is not None:
            supported_options[name] = value
    return supported_options


def extract_and_report(
    source: Path,
    out: Path,
    extractor: MediaFeatures,
    engine: Any = None,
    table_options: Mapping[str, Any] | None = None,
) -> Summary:
    """Extract the features of a folder of media; print skipped files, a summary and keywords.

    Parameters
    ----------
    source : Path
        A folder, or a table with a column of texts.
    out : Path
    extractor : MediaFeatures
    engine : RayEngine or None
        That of `polyseme.batch.open_engine`; None extracts in this process.
    table_options : mapping, optional
        How a table is read: the last arguments of `extract_table`.
    """
    from polyseme.base.progress import FileProgress
    from polyseme.media import extract_folder
    from polyseme.media.base import quiet_decoders
    from polyseme.media.extraction import by_reason, extract_table

    with quiet_decoders(), FileProgress(f"extracting {extractor.kind}") as progress:
        if source.is_file():
            options = table_options or {}
            summary = extract_table(source, out, extractor, progress=progress.tell, **options)
        else:
            summary = extract_folder(source, out, extractor, progress=progress.tell, engine=engine)
    _report_skipped(summary.skipped)
    unread_files = by_reason(summary.unread)
    for names, reason in unread_files[:_MOST_REASONS]:
        say(f"keywords of {names} cannot be read: {reason}")
    say(summary.sentence())
    sameness = summary.sameness()
    if sameness:
        say(sameness)
    say(summary.keywords())
    return summary


def _report_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Print the files that could not be used, each reason once.

    `skipped` has pairs of a file's name and a reason.
    """
    from polyseme.media.extraction import by_reason

    skipped_files = by_reason(skipped)
    for names, reason in skipped_files[:_MOST_REASONS]:
        say(f"skipped {names}: {reason}")
    n_more = len(skipped_files) - _MOST_REASONS
    if n_more > 0:
        say(f"… and more files for {n_more:,} other reasons; files.jsonl of `extract` has all")


@command(FILES)
def tag(
    model: Path,
    paths: list[Path],
    top: int | None = None,
    precision: float | None = None,
    kind: LabelKind | None = None,
    features: Path | None = None,
    form: Form = Form.auto,
    sidecars: bool = False,
    dry_run: bool = False,
    undo: bool = False,
    device: str = "cpu",
    engine: EngineName = "local",
    address: str | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> None:
    """Tag pictures, sounds and texts; --sidecars writes the tags beside them, or into Markdown."""
    if undo:
        undo_records, n_unwritten = _undo_suggestions(paths, dry_run)
        if for_people(form):  # a sidecar has the name of its file, so that one column is enough
            for record in undo_records:
                del record["sidecar"]
        emit(undo_records, form)
        if n_unwritten:
            raise_error(
                f"{counted(n_unwritten, 'file')} could not be changed; remove the cause and run "
                "the command again."
            )
        return
    from polyseme.batch import Tagging, open_engine

    with open_engine(engine, address, workers, say) as ray_engine:
        tagging = Tagging(
            model,
            paths,
            top,
            precision=precision,
            kind=kind,
            extraction=features,
            n_jobs=workers,
            device=device,
            engine=ray_engine,
        )
        if top is None and precision is None:
            _report_default_precision(tagging.ranker.precision, tagging.ranker.leaves_out)
        records: Iterable[dict[str, Any]] = tagging.records()
        if sidecars or dry_run:
            # All sidecars are written before any is printed: a closed pipe must not stop it.
            records = list(tagging.sidecars(dry_run=dry_run))
        if for_people(form):
            records = map(readable_record, records)
        emit(records, form)
    if dry_run:
        say("nothing was written; --sidecars in place of --dry-run writes these tags")
    _report_skipped(tagging.skipped)
    if tagging.n_unwritten:
        raise_error(
            f"{counted(tagging.n_unwritten, 'sidecar')} could not be written; remove the cause "
            "and run the command again: tags that were added are not added twice."
        )
    all_skipped = len(tagging.skipped) >= len(tagging.files)
    if tagging.skipped and (strict or all_skipped):
        raise typer.Exit(1)


def _report_default_precision(precision: float | None, leaves_out: bool) -> None:
    """Print the precision that tags are given for, where the user asked for none.

    Parameters
    ----------
    precision : float or None
        None where the model can promise none, and the best tags are given instead.
    leaves_out : bool
        Whether unseen tags are left out, since the model cannot promise this precision of them.
    """
    if precision is None:
        return
    say(f"tags for a precision of {precision:g}; --precision asks for another, --top for more")
    if leaves_out:
        say(
            "tags that no training item carries are left out: the model cannot promise a precision "
            "of them; --top 10 gives the ten best of all tags, --kind unseen these alone"
        )


def _undo_suggestions(paths: Sequence[Path], dry_run: bool) -> tuple[list[dict[str, Any]], int]:
    """Remove unanswered suggestions from sidecars; return a record for each that had some.

    Sidecars that cannot be read or changed are reported, and left; returned is also how many of
    them the system would not have changed.
    """
    from polyseme.base.validation import InputError
    from polyseme.media.tag_files import undo_suggestions

    records: list[dict[str, Any]] = []
    skipped: list[tuple[str, str]] = []
    n_unwritten = 0
    n_tags = 0
    for file, sidecar in _find_sidecars(paths):
        try:
            removed_tags = undo_suggestions(sidecar, dry_run=dry_run)
        except InputError as error:
            skipped.append((file, str(error)))
            n_unwritten += isinstance(error.__cause__, OSError)
            continue
        if removed_tags:
            records.append({"file": file, "sidecar": str(sidecar), "removed": removed_tags})
            n_tags += len(removed_tags)
    _report_skipped(skipped)
    would = "would be " if dry_run else ""
    say(f"{counted(n_tags, 'suggestion')} {would}taken back from {counted(len(records), 'file')}")
    return records, n_unwritten


def _find_sidecars(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return each sidecar of media files, or of files in folders, after the path of its file."""
    from polyseme.media import media_suffixes
    from polyseme.media.extraction import find_media
    from polyseme.media.tag_files import tag_files_of

    files, _ = find_media(paths, media_suffixes())
    file_by_sidecar: dict[Path, str] = {}
    for file in files:
        for sidecar in tag_files_of(file.path):
            file_by_sidecar[sidecar] = str(file.path)
    return [(file, sidecar) for sidecar, file in file_by_sidecar.items()]


class _PendingFile(NamedTuple):
    """A media file that has a sidecar."""

    name: str  # its path
    sidecar: Path
    pending: Sequence[str]  # suggested tags without an answer


@command(FILES)
def review(
    paths: list[Path],
    accept: list[str] | None = None,
    refuse: list[str] | None = None,
    model: Path | None = None,
    features: Path | None = None,
    form: Form = Form.auto,
) -> None:
    """Accept or refuse the tags that `tag --sidecars` suggested, or list them."""
    from polyseme.base.validation import InputError
    from polyseme.cli.inputs import TableReader, items_to_learn
    from polyseme.feedback.verdict_log import Verdict
    from polyseme.media.suggestions import check_answers, lacking
    from polyseme.media.tag_files import answer_suggestions, read_tags

    tagger = None if model is None else load_default_tagger(model, "review --model")
    if tagger is not None and tagger.features_ is None:
        raise_error("This model takes numbers; `review --model` needs one that takes files.")
    files: list[_PendingFile] = []
    skipped: list[tuple[str, str]] = []
    for name, sidecar in _find_sidecars(paths):
        try:
            pending = read_tags(sidecar).pending
        except InputError as error:
            skipped.append((name, str(error)))
            continue
        files.append(_PendingFile(name, sidecar, pending))
    _report_skipped(skipped)

    if not (accept or refuse):
        _list_pending(files, form)
        return

    accepted_tags, refused_tags = check_answers(accept or [], refuse or [])
    # Items to learn from are read before any sidecar is changed. X has their features, as `learn`
    # takes them; it stays None where nothing is learned. A table in --features is read as it is.
    item_by_file: dict[str, str] = {}
    X: Any = None
    if tagger is not None:
        answered = _answered_files(files, [*accepted_tags, *refused_tags])
        if answered:
            items, X = items_to_learn(answered, tagger, features, TableReader())
            item_by_file = dict(zip(answered, items, strict=True))

    records: list[dict[str, Any]] = []
    unwritten: list[tuple[str, str]] = []
    for file in files:
        if not file.pending:
            continue
        # A star stands for all pending tags that the other answer does not name.
        to_accept = accepted_tags
        if "*" in accepted_tags:
            to_accept = lacking(present=refused_tags, wanted=file.pending)
        to_refuse = refused_tags
        if "*" in refused_tags:
            to_refuse = lacking(present=accepted_tags, wanted=file.pending)
        try:
            accepted, refused = answer_suggestions(file.sidecar, accept=to_accept, refuse=to_refuse)
        except InputError as error:
            unwritten.append((file.name, str(error)))
            continue
        if accepted or refused:
            records.append({"file": file.name, "accepted": accepted, "refused": refused})
    _report_skipped(unwritten)
    if not (records or unwritten):
        raise_error(
            "None of these tags waits for an answer in these files; `polyseme review` without "
            "--accept and --refuse lists those that do."
        )
    emit(records, form)
    if tagger is not None and records:
        verdicts: list[Verdict] = []
        for record in records:
            item = item_by_file[record["file"]]
            verdicts.extend(Verdict(item, label, True) for label in record["accepted"])
            verdicts.extend(Verdict(item, label, False) for label in record["refused"])
        tagger.learn(verdicts, X)
        say(f"the model has learned from {summarize_verdicts(verdicts)}")
    if any(record["accepted"] for record in records):
        say(
            "accepted tags are yours now: run `polyseme extract` again, and the next `fit` learns "
            "from them"
        )
    if unwritten:
        raise typer.Exit(1)


def _list_pending(files: Sequence[_PendingFile], form: Form) -> None:
    """Print the suggestions that wait for an answer."""
    records: list[dict[str, Any]] = []
    for file in files:
        if file.pending:
            records.append({"file": file.name, "suggested": file.pending})
    emit(records, form)
    if not records:
        say("no suggestion waits for an answer; `polyseme tag --sidecars` makes some")


def _answered_files(files: Sequence[_PendingFile], answers: Sequence[str]) -> list[str]:
    """Return the names of files of which some pending tag is answered; "*" answers any tag."""
    from polyseme.media.suggestions import lacking

    answered_names = []
    for file in files:
        n_unanswered = len(lacking(answers, file.pending))
        is_answered = "*" in answers or n_unanswered < len(file.pending)
        if file.pending and is_answered:
            answered_names.append(file.name)
    return answered_names
