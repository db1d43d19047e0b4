"""Label Studio's interface to a machine learning backend.

In: tasks with a labelling configuration. Out: predictions for its `Choices` and `Taxonomy`; what
annotators make of them is learned as answers. The backend of a model is `/label-studio/MODEL`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from polyseme._text import shown
from polyseme._validation import InputError, first_few
from polyseme.io import parse_xml
from polyseme.serve import api
from polyseme.serve.api import Host, Reviewer, answer
from polyseme.serve.batching import QueueFullError
from polyseme.serve.collection import UnknownItemError
from polyseme.serve.host import Ask, ModelHost, Row, Snapshot, Suggestion
from polyseme.serve.references import item_of, known_tags, row_of_reference
from polyseme.serve.schemas import MOST_NUMBERS
from polyseme.verdicts import Verdict

MOST_TASKS = 256
MOST_LABELS = 1000
_LIKELY = 0.5
_XML_BYTES, _DEEPEST = 2**21, 20
_KINDS = {"Choices": "choices", "Taxonomy": "taxonomy"}
_MOST_WAITING = 1024  # annotations
_log = logging.getLogger("polyseme.serve")
# Annotations are learned one after the other, in the order in which they came.
_turns: WeakKeyDictionary[ModelHost, asyncio.Lock] = WeakKeyDictionary()
_waiting: set[asyncio.Task[None]] = set()

router = APIRouter(
    prefix="/label-studio/{model}", tags=["label studio"], responses=api.router.responses
)


class Loose(BaseModel):
    """What is sent; fields that nobody asks for are passed over."""

    model_config = ConfigDict(extra="ignore")


class SetupBody(Loose):
    """A project, and its labelling configuration."""

    project: str | None = None
    schema_: Annotated[str | None, Field(alias="schema", max_length=_XML_BYTES)] = None


class Task(Loose):
    """What is to be labelled."""

    id: int | str | None = None
    data: dict[str, Any] = {}


class Parameters(Loose):
    """How predictions are made."""

    threshold: Annotated[float, Field(ge=0, le=1)] = _LIKELY


class PredictBody(Loose):
    """Tasks, and the labelling configuration of their project."""

    tasks: Annotated[list[Task], Field(max_length=MOST_TASKS)]
    label_config: Annotated[str | None, Field(max_length=_XML_BYTES)] = None
    params: Parameters | None = None


class Prediction(Loose):
    """What was predicted, or what somebody made of it."""

    id: int | str | None = None
    result: list[dict[str, Any]] = []
    was_cancelled: bool = False
    prediction: Prediction | None = None


class Project(Loose):
    """The project that something happened in."""

    id: int | str | None = None
    label_config: Annotated[str | None, Field(max_length=_XML_BYTES)] = None


class WebhookBody(Loose):
    """What has happened."""

    action: str
    project: Project = Project()
    task: Task | None = None
    annotation: Prediction | None = None


# ---------------------------------------------------------------------- labelling configurations


class Choice(NamedTuple):
    """Something that can be chosen."""

    path: tuple[str, ...]  # as results have it, with all above it
    shown: str


@dataclass(frozen=True)
class Control:
    """A tag of a configuration by which annotators say what labels something has.

    Attributes
    ----------
    kind : {"choices", "taxonomy"}
    name, object_name : str
        `from_name` and `to_name` of results.
    field : str
        The field of a task's data that is shown.
    choices : tuple of Choice
        What can be chosen.
    options : str
        The field of a task's data that lists what can be chosen; empty where the tag does.
    single : bool
        Whether but one can be chosen.
    """

    kind: str
    name: str
    object_name: str
    field: str
    choices: tuple[Choice, ...]
    options: str
    single: bool

    def value(self, path: Sequence[str]) -> Any:
        """Return one choice as results have it."""
        return path[-1] if self.kind == "choices" else list(path)

    def labels(self, now: Snapshot, task: Task) -> dict[str, Choice]:
        """Return what can be chosen for a task, by the label of a model that it is."""
        choices = [*self.choices, *_options(task.data.get(self.options))]
        known = ((now.known(one.path[-1]) or now.known(one.shown), one) for one in choices)
        return {label: one for label, one in known if label is not None}


def read_config(xml: str | None) -> list[Control]:
    """Read the controls that labels can be chosen by from a labelling configuration.

    Parameters
    ----------
    xml : str or None

    Raises
    ------
    InputError
        Where there is none, or one does not fit the rest of the configuration.
    """
    if not xml:
        raise InputError("The labelling configuration is missing.")
    root = parse_xml(xml.encode(), "The labelling configuration")
    objects = {}
    for element in root.iter():
        shown = element.get("value", "") if isinstance(element.tag, str) else ""
        if shown.startswith("$") and element.get("name") and element.tag not in _KINDS:
            objects[element.get("name")] = shown[1:]
    controls = []
    for element in root.iter(*_KINDS):
        name = element.get("name") or ""
        wanted = [one.strip() for one in (element.get("toName") or "").split(",")]
        target = next((one for one in wanted if one in objects), None)
        if not name or target is None:
            there = first_few(sorted(objects)) or "none"
            raise InputError(
                f"<{element.tag}> '{name}' of the labelling configuration goes to "
                f"'{', '.join(wanted)}' (toName), which shows nothing; what is shown: {there}."
            )
        options = element.get("value") or ""
        choices = tuple(_choices(element, ()))
        single = element.tag == "Choices" and element.get("choice", "single") != "multiple"
        kind = _KINDS[element.tag]
        controls.append(
            Control(kind, name, target, objects[target], choices, options.lstrip("$"), single)
        )
    if not controls:
        raise InputError(
            "The labelling configuration has neither <Choices> nor <Taxonomy>, by which labels "
            "could be given."
        )
    return controls


def _choices(element: Any, above: tuple[str, ...]) -> Iterator[Choice]:
    """Yield what can be chosen below an element."""
    for child in element.iterchildren("Choice"):
        shown = child.get("value") or child.get("alias")
        if shown and len(above) < _DEEPEST:
            path = (*above, child.get("alias") or shown)
            yield Choice(path, shown)
            yield from _choices(child, path)


def check_config(host: ModelHost, xml: str | None) -> None:
    """Raise, with a sentence, where predictions could not be shown by a configuration."""
    for control in read_config(xml):
        closed = control.kind == "choices" and not control.options
        if closed and not control.labels(host.now, Task()):
            names = first_few([one.shown for one in control.choices]) or "there are none"
            raise InputError(
                f"None of the choices of '{control.name}' is a label of this model: {names}."
            )


# ---------------------------------------------------------------------- routes


@router.get("/", summary="Whether the backend is there")
@router.get("/health", summary="Whether the backend is there", operation_id="health_of_backend")
async def health(host: Host) -> Response:
    """Return that the model answers."""
    return answer({"status": "UP", "model_class": f"polyseme {host.name}"}, host.now.version)


@router.get("/metrics", summary="Nothing; /metrics has all", operation_id="metrics_of_backend")
async def metrics(host: Host) -> Response:
    """Return nothing: what is counted is counted for all models together."""
    return answer({})


@router.post("/setup", summary="Check a labelling configuration")
def setup(body: SetupBody, host: Host) -> Response:
    """Return which version answers, or why its answers could not be shown."""
    check_config(host, body.schema_)
    return answer({"model_version": host.now.version}, host.now.version)


@router.post("/predict", summary="Predictions for tasks")
async def predict(body: PredictBody, host: Host) -> Response:
    """Predict labels for each task; one of which nothing is known has no result."""
    controls = read_config(body.label_config)
    threshold = _LIKELY if body.params is None else body.params.threshold
    waiting = [_predicted(host, controls, task, threshold) for task in body.tasks]
    return answer({"results": await asyncio.gather(*waiting)}, host.now.version)


@router.post("/webhook", status_code=201, summary="What annotators did")
async def webhook(body: WebhookBody, host: Host, who: Reviewer) -> Any:
    """Learn what annotators did; it is on disk when this answers.

    Label Studio waits for a second and sends nothing twice. What has begun is therefore learned
    also where nobody waits for the answer any more.
    """
    if body.action.startswith("ANNOTATION") and body.task and body.annotation:
        if len(_waiting) >= _MOST_WAITING:
            _log.warning("%s: an annotation was not learned: too many are waiting", host.name)
            raise QueueFullError
        learning = asyncio.create_task(_in_turn(host, body))
        _waiting.add(learning)
        learning.add_done_callback(_forget)
        await asyncio.shield(learning)
    return {"result": {}, "status": "ok"}


# ---------------------------------------------------------------------- predictions


async def _predicted(
    host: ModelHost, controls: Sequence[Control], task: Task, threshold: float
) -> dict[str, Any]:
    """Predict the labels of one task, for every control."""
    now, results, scores = host.now, [], list[float]()
    for control in controls:
        now, found = await _suggested(host, control, task)
        chosen = _chosen(now, control, task, found, threshold)
        if chosen:
            scores += [score for _, score in chosen]
            values = [value for value, _ in chosen]
            results.append(
                {
                    "from_name": control.name,
                    "to_name": control.object_name,
                    "type": control.kind,
                    "value": {control.kind: values},
                }
            )
    score = float(np.mean(scores)) if scores else 0.0
    return {"model_version": now.version, "score": round(score, 6), "result": results}


async def _suggested(
    host: ModelHost, control: Control, task: Task
) -> tuple[Snapshot, list[Suggestion]]:
    """Ask a model about what a control's object shows; nothing where that is not known."""
    try:
        row, tags = await _thing(host, control.field, task)
        if row is not None or tags:
            ask, _ = host.check(Ask(row, tuple(tags), MOST_LABELS))
            now, found = await host.scoring.submit(ask)
            given = [Suggestion(tag, 1.0, now.kinds[tag]) for tag in ask.tags if tag in now.kinds]
            return now, [*given, *found]
    except InputError as error:
        _log.info("%s: task %s has no prediction: %s", host.name, task.id, error)
    return host.now, []


async def _thing(host: ModelHost, field: str, task: Task) -> tuple[Row | None, list[str]]:
    """Return the numbers of what a task shows, and the tags that it has."""
    data = task.data
    shown = data.get(field)
    tags = data.get("tags", [])
    tags = [tags] if isinstance(tags, str) else tags if isinstance(tags, list) else []
    known = [tag for one in tags if isinstance(one, str) for tag in known_tags(host, one)]
    for features in (data.get("features"), shown):
        if isinstance(features, list):
            return _numbers(features), known
    if isinstance(data.get("item"), str):
        return await row_of_reference(host, data["item"]), known
    if not isinstance(shown, str):
        return None, known
    if shown.startswith("data:") or item_of(host.collection, shown) is not None:
        return await row_of_reference(host, shown), known
    return None, [*known, *known_tags(host, shown)]  # a text of tags


def _numbers(features: list[Any]) -> Row:
    """Return features of a task as a row."""
    numbers = [one for one in features if isinstance(one, (int, float))]
    if len(numbers) != len(features) or len(features) > MOST_NUMBERS:
        raise InputError(f"`features` of a task must be {MOST_NUMBERS} numbers at the most.")
    with np.errstate(over="ignore"):  # told of as infinity
        return np.asarray(numbers, dtype=np.float64).astype(np.float32)


def _chosen(
    now: Snapshot,
    control: Control,
    task: Task,
    found: Iterable[Suggestion],
    threshold: float,
) -> list[tuple[Any, float]]:
    """Return what a control may show of suggestions, as results have it, with probabilities."""
    choices, likely = control.labels(now, task), list[tuple[Any, float]]()
    for one in found:
        choice = choices.get(one.label)
        if choice is None and control.kind == "taxonomy":
            choice = Choice((one.label,), one.label)  # to which labels may be added
        if choice is not None and (control.single or one.probability >= threshold):
            likely.append((control.value(choice.path), one.probability))
    return likely[:1] if control.single else likely


def _options(given: Any) -> Iterator[Choice]:
    """Yield what can be chosen where a task's data list it."""
    for one in given if isinstance(given, list) else ():
        fields = one if isinstance(one, Mapping) else {"value": one}
        shown = fields.get("value") or fields.get("alias")
        name = fields.get("alias") or shown
        if isinstance(name, str) and isinstance(shown, str):
            yield Choice((name,), shown)


# ---------------------------------------------------------------------- learning


def _forget(learning: asyncio.Task[None]) -> None:
    """Remove an annotation from those that wait; where it failed, the log says so already."""
    _waiting.discard(learning)
    if not learning.cancelled():
        learning.exception()  # else asyncio complains where nobody waits for it any more


async def _in_turn(host: ModelHost, body: WebhookBody) -> None:
    """Learn from an annotation when those before it are learned; log why it cannot be learned."""
    try:
        async with _turns.setdefault(host, asyncio.Lock()):
            await _learn(host, body)
    except InputError as error:
        _log.warning("%s: an annotation was not learned: %s", host.name, error)
        raise
    except Exception:
        _log.exception("%s: an annotation was not learned", host.name)
        raise


async def _learn(host: ModelHost, body: WebhookBody) -> None:
    """Learn what an annotation says of its item."""
    controls = await run_in_threadpool(read_config, body.project.label_config)
    assert body.task is not None
    name, row = await _item(host, controls, body.task, body.project)
    await run_in_threadpool(_learn_answers, host, body, controls, name, row)


def _learn_answers(
    host: ModelHost,
    body: WebhookBody,
    controls: Sequence[Control],
    name: str,
    row: Row | None,
) -> None:
    """Learn the labels of an annotation as right, and those that it took out as wrong.

    What the same annotation said before, and does not say any more, is taken back.
    """
    task, annotation = body.task, body.annotation
    assert task is not None and annotation is not None
    who = f"label-studio {body.project.id} {annotation.id}"
    now = host.now
    answers: dict[str, bool] = {}
    if body.action != "ANNOTATION_DELETED" and not annotation.was_cancelled:
        predicted = annotation.prediction or Prediction()
        answers = dict.fromkeys(_labels(now, controls, task, predicted), False)
        answers |= dict.fromkeys(_labels(now, controls, task, annotation), True)
    standing = {
        now.known(verdict.label) or verdict.label: verdict
        for verdict in now.said.get(name, ())
        if verdict.who == who and verdict.number is not None
    }
    withdrawn = [
        verdict.number
        for label, verdict in standing.items()
        if verdict.number is not None and answers.get(label) != verdict.answer
    ]
    new_verdicts = [
        Verdict(name, label, answer, model=now.version, who=who)
        for label, answer in answers.items()
        if label not in standing or standing[label].answer != answer
    ]
    # In this order nothing is lost where the second step fails.
    if new_verdicts:
        host.learn(new_verdicts, None if row is None else {name: row})
    if withdrawn:
        host.undo(withdrawn)


async def _item(
    host: ModelHost, controls: Sequence[Control], task: Task, project: Project
) -> tuple[str, Row | None]:
    """Return the name of a task's item, and its numbers where it is not in the collection."""
    for reference in (task.data.get("item"), *(task.data.get(one.field) for one in controls)):
        name = item_of(host.collection, reference) if isinstance(reference, str) else None
        if name is not None:
            return name, None
    row, _ = await _thing(host, controls[0].field, task)
    if row is None:
        raise UnknownItemError(
            f"There is no item for task {shown(task.id)}: its data name none of the collection, "
            "and have neither features nor a data URL."
        )
    host.check_row(row)
    return f"label-studio {project.id} {task.id}", row


def _labels(
    now: Snapshot, controls: Sequence[Control], task: Task, made: Prediction
) -> Iterator[str]:
    """Yield the labels that a prediction or an annotation has, under their own names."""
    by_name = {control.name: control for control in controls}
    for one in made.result:
        control, value = by_name.get(str(one.get("from_name"))), one.get("value")
        if control is None or not isinstance(value, Mapping):
            continue
        own = {choice.path[-1]: label for label, choice in control.labels(now, task).items()}
        chosen = value.get(control.kind)
        for choice in chosen if isinstance(chosen, list) else ():
            name = choice[-1] if isinstance(choice, list) and choice else choice
            if isinstance(name, str) and 0 < len(name.strip()) <= 200:
                yield own.get(name) or now.known(name.strip()) or name.strip()
