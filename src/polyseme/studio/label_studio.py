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

from polyseme.base.text import shown
from polyseme.base.validation import InputError, first_few
from polyseme.feedback.verdict_log import Verdict
from polyseme.io import parse_xml
from polyseme.studio.batching import QueueFullError
from polyseme.studio.collection import UnknownItemError
from polyseme.studio.host import ItemFeatures, ModelHost, Snapshot, Suggestion, SuggestRequest
from polyseme.studio.http import PROBLEMS, Host, Reviewer, json_response
from polyseme.studio.references import features_of_reference, item_of, known_tags
from polyseme.studio.schemas import MOST_NUMBERS

MOST_TASKS = 256
MOST_LABELS = 1000
_LIKELY = 0.5
_XML_BYTES = 2**21
_DEEPEST = 20
_KINDS = {"Choices": "choices", "Taxonomy": "taxonomy"}
_MOST_WAITING = 1024  # annotations
_log = logging.getLogger("polyseme.studio")
# Annotations are learned one after the other, in the order in which they came.
_turns: WeakKeyDictionary[ModelHost, asyncio.Lock] = WeakKeyDictionary()
_waiting: set[asyncio.Task[None]] = set()

router = APIRouter(prefix="/label-studio/{model}", tags=["label studio"], responses=PROBLEMS)


class Loose(BaseModel):
    """A body of a request; unknown fields are ignored."""

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
    """A prediction, or an annotation made from one."""

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


class TagChoice(NamedTuple):
    """Something that can be chosen."""

    path: tuple[str, ...]  # as results have it, with all above it
    shown: str


@dataclass(frozen=True)
class Control:
    """An element of a labelling configuration with which annotators choose labels.

    Attributes
    ----------
    kind : {"choices", "taxonomy"}
    name, object_name : str
        `from_name` and `to_name` of results.
    field : str
        The field of a task's data that is shown.
    choices : tuple of TagChoice
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
    choices: tuple[TagChoice, ...]
    options: str
    single: bool

    def value(self, path: Sequence[str]) -> Any:
        """Return one choice as results have it."""
        if self.kind == "choices":
            return path[-1]
        return list(path)

    def labels(self, snapshot: Snapshot, task: Task) -> dict[str, TagChoice]:
        """Return the choices of a task by the model's labels that they stand for."""
        choice_by_label: dict[str, TagChoice] = {}
        listed_choices = _read_options(task.data.get(self.options))
        for choice in (*self.choices, *listed_choices):
            label = snapshot.find_label(choice.path[-1]) or snapshot.find_label(choice.shown)
            if label is not None:
                choice_by_label[label] = choice
        return choice_by_label


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
    field_by_object = _fields_by_object(root)
    controls = [_read_control(element, field_by_object) for element in root.iter(*_KINDS)]
    if not controls:
        raise InputError(
            "The labelling configuration has neither <Choices> nor <Taxonomy>, by which labels "
            "could be given."
        )
    return controls


def _fields_by_object(root: Any) -> dict[str, str]:
    """Return the field of a task's data that each object of a configuration shows, by its name."""
    fields: dict[str, str] = {}
    for element in root.iter():
        tag = element.tag
        if not isinstance(tag, str) or tag in _KINDS:
            continue
        name = element.get("name")
        value = element.get("value", "")
        if name and value.startswith("$"):
            fields[name] = value[1:]
    return fields


def _read_control(element: Any, field_by_object: Mapping[str, str]) -> Control:
    """Read one control of a labelling configuration.

    Parameters
    ----------
    element : Element
    field_by_object : mapping of str to str
        See `_fields_by_object`.

    Raises
    ------
    InputError
        Where it has no name, or is for no object that shows something.
    """
    name = element.get("name") or ""
    targets = [target.strip() for target in (element.get("toName") or "").split(",")]
    object_name = next((target for target in targets if target in field_by_object), None)
    if not name or object_name is None:
        object_names = first_few(sorted(field_by_object)) or "none"
        raise InputError(
            f"<{element.tag}> '{name}' of the labelling configuration goes to "
            f"'{', '.join(targets)}' (toName), which shows nothing; what is shown: {object_names}."
        )
    options = element.get("value") or ""
    return Control(
        kind=_KINDS[element.tag],
        name=name,
        object_name=object_name,
        field=field_by_object[object_name],
        choices=tuple(_choices(element, ())),
        options=options.lstrip("$"),
        single=element.tag == "Choices" and element.get("choice", "single") != "multiple",
    )


def _choices(element: Any, above: tuple[str, ...]) -> Iterator[TagChoice]:
    """Yield the choices below an element."""
    for child in element.iterchildren("Choice"):
        alias = child.get("alias")
        text = child.get("value") or alias
        if text and len(above) < _DEEPEST:
            path = (*above, alias or text)
            yield TagChoice(path, text)
            yield from _choices(child, path)


def check_config(host: ModelHost, xml: str | None) -> None:
    """Raise an error where a configuration could not show predictions."""
    for control in read_config(xml):
        closed = control.kind == "choices" and not control.options
        if not closed or control.labels(host.snapshot, Task()):
            continue
        texts = [choice.shown for choice in control.choices]
        names = first_few(texts) or "there are none"
        raise InputError(
            f"None of the choices of '{control.name}' is a label of this model: {names}."
        )


# ---------------------------------------------------------------------- routes


@router.get("/", summary="Whether the backend is there")
@router.get("/health", summary="Whether the backend is there", operation_id="health_of_backend")
async def health(host: Host) -> Response:
    """Return that the model answers."""
    return json_response(
        {"status": "UP", "model_class": f"polyseme {host.name}"}, host.snapshot.version
    )


@router.get("/metrics", summary="Nothing; /metrics has all", operation_id="metrics_of_backend")
async def metrics(host: Host) -> Response:
    """Return nothing: metrics are for all models together, at `/metrics`."""
    return json_response({})


@router.post("/setup", summary="Check a labelling configuration")
def setup(body: SetupBody, host: Host) -> Response:
    """Return which version answers, or why its answers could not be shown."""
    check_config(host, body.schema_)
    return json_response({"model_version": host.snapshot.version}, host.snapshot.version)


@router.post("/predict", summary="Predictions for tasks")
async def predict(body: PredictBody, host: Host) -> Response:
    """Predict labels for each task; a task without known features or tags has no result."""
    controls = read_config(body.label_config)
    threshold = _LIKELY
    if body.params is not None:
        threshold = body.params.threshold
    predictions = [_predict_task(host, controls, task, threshold) for task in body.tasks]
    results = await asyncio.gather(*predictions)
    return json_response({"results": results}, host.snapshot.version)


@router.post("/webhook", status_code=201, summary="What annotators did")
async def webhook(body: WebhookBody, host: Host, caller: Reviewer) -> Any:
    """Learn the answers of annotators; they are on disk when this responds.

    Label Studio waits for a second and sends nothing twice. What has begun is therefore learned
    also where nobody waits for the answer any more.
    """
    if body.action.startswith("ANNOTATION") and body.task and body.annotation:
        if len(_waiting) >= _MOST_WAITING:
            _log.warning("%s: an annotation was not learned: too many are waiting", host.name)
            raise QueueFullError
        learning = asyncio.create_task(_in_turn(host, body))
        _waiting.add(learning)
        learning.add_done_callback(_remove_waiting)
        await asyncio.shield(learning)
    return {"result": {}, "status": "ok"}


# ---------------------------------------------------------------------- predictions


async def _predict_task(
    host: ModelHost, controls: Sequence[Control], task: Task, threshold: float
) -> dict[str, Any]:
    """Predict the labels of one task, for every control."""
    snapshot = host.snapshot
    results: list[dict[str, Any]] = []
    scores: list[float] = []
    for control in controls:
        snapshot, suggestions = await _suggest_for_control(host, control, task)
        choices = _select_choices(snapshot, control, task, suggestions, threshold)
        if not choices:
            continue
        values = [value for value, _ in choices]
        scores += [score for _, score in choices]
        results.append(
            {
                "from_name": control.name,
                "to_name": control.object_name,
                "type": control.kind,
                "value": {control.kind: values},
            }
        )
    score = float(np.mean(scores)) if scores else 0.0
    return {"model_version": snapshot.version, "score": round(score, 6), "result": results}


async def _suggest_for_control(
    host: ModelHost, control: Control, task: Task
) -> tuple[Snapshot, list[Suggestion]]:
    """Return suggestions for a control's object; none where it is unknown."""
    try:
        row, tags = await _features_and_tags(host, control.field, task)
        if row is not None or tags:
            request = SuggestRequest(row, tuple(tags), MOST_LABELS)
            query, _ = host.check(request)
            snapshot, suggestions = await host.scoring.submit(query)
            certain: list[Suggestion] = []
            for label in query.tags:
                kind = snapshot.kinds.get(label)
                if kind is not None:
                    certain.append(Suggestion(label, 1.0, kind))
            return snapshot, [*certain, *suggestions]
    except InputError as error:
        _log.info("%s: task %s has no prediction: %s", host.name, task.id, error)
    return host.snapshot, []


async def _features_and_tags(
    host: ModelHost, field: str, task: Task
) -> tuple[ItemFeatures | None, list[str]]:
    """Return the features of a task's object, and the task's tags."""
    content = task.data.get(field)
    item = task.data.get("item")
    tags = _tags_of(host, task)
    for features in (task.data.get("features"), content):
        if isinstance(features, list):
            return _read_numbers(features), tags
    if isinstance(item, str):
        return await features_of_reference(host, item), tags
    if not isinstance(content, str):
        return None, tags
    if content.startswith("data:") or item_of(host.collection, content) is not None:
        return await features_of_reference(host, content), tags
    return None, [*tags, *known_tags(host, content)]  # a text of tags


def _tags_of(host: ModelHost, task: Task) -> list[str]:
    """Return the tags of a task that a model knows."""
    texts = task.data.get("tags", [])
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list):
        return []
    tags: list[str] = []
    for text in texts:
        if isinstance(text, str):
            tags += known_tags(host, text)
    return tags


def _read_numbers(features: list[Any]) -> ItemFeatures:
    """Return features of a task as a row."""
    numbers = [feature for feature in features if isinstance(feature, (int, float))]
    if len(numbers) != len(features) or len(features) > MOST_NUMBERS:
        raise InputError(f"`features` of a task must be {MOST_NUMBERS} numbers at the most.")
    with np.errstate(over="ignore"):  # reported as infinity
        row = np.asarray(numbers, dtype=np.float64)
        return row.astype(np.float32)


def _select_choices(
    snapshot: Snapshot,
    control: Control,
    task: Task,
    suggestions: Iterable[Suggestion],
    threshold: float,
) -> list[tuple[Any, float]]:
    """Return the suggestions that a control can show, as values of results, with probabilities."""
    choice_by_label = control.labels(snapshot, task)
    likely: list[tuple[Any, float]] = []
    for suggestion in suggestions:
        label = suggestion.label
        choice = choice_by_label.get(label)
        if choice is None and control.kind == "taxonomy":
            choice = TagChoice((label,), label)  # to which labels may be added
        if choice is None:
            continue
        if control.single or suggestion.probability >= threshold:
            likely.append((control.value(choice.path), suggestion.probability))
    return likely[:1] if control.single else likely


def _read_options(options: Any) -> Iterator[TagChoice]:
    """Yield the choices that a task's data list."""
    if not isinstance(options, list):
        return
    for option in options:
        fields = option if isinstance(option, Mapping) else {"value": option}
        text = fields.get("value") or fields.get("alias")
        name = fields.get("alias") or text
        if isinstance(name, str) and isinstance(text, str):
            yield TagChoice((name,), text)


# ---------------------------------------------------------------------- learning


def _remove_waiting(learning: asyncio.Task[None]) -> None:
    """Remove an annotation from the queue; its error has been logged."""
    _waiting.discard(learning)
    if not learning.cancelled():
        learning.exception()  # retrieved, or asyncio would complain


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
    """Learn the labels of an annotation."""
    controls = await run_in_threadpool(read_config, body.project.label_config)
    assert body.task is not None
    name, row = await _item(host, controls, body.task, body.project)
    await run_in_threadpool(_learn_answers, host, body, controls, name, row)


def _learn_answers(
    host: ModelHost,
    body: WebhookBody,
    controls: Sequence[Control],
    name: str,
    row: ItemFeatures | None,
) -> None:
    """Learn the labels of an annotation as right, and those that it took out as wrong.

    What the same annotation said before, and does not say any more, is taken back.
    """
    task = body.task
    annotation = body.annotation
    assert task is not None and annotation is not None
    annotator = f"label-studio {body.project.id} {annotation.id}"
    snapshot = host.snapshot
    answers: dict[str, bool] = {}
    if body.action != "ANNOTATION_DELETED" and not annotation.was_cancelled:
        predicted = annotation.prediction or Prediction()
        answers = dict.fromkeys(_labels(snapshot, controls, task, predicted), False)
        answers |= dict.fromkeys(_labels(snapshot, controls, task, annotation), True)

    standing: dict[str, Verdict] = {}
    for verdict in snapshot.verdicts_by_item.get(name, ()):
        if verdict.who == annotator and verdict.number is not None:
            standing[snapshot.current_label(verdict.label)] = verdict
    withdrawn: list[int] = []
    for label, verdict in standing.items():
        if verdict.number is not None and answers.get(label) != verdict.answer:
            withdrawn.append(verdict.number)
    new_verdicts: list[Verdict] = []
    for label, is_right in answers.items():
        if label not in standing or standing[label].answer != is_right:
            new_verdicts.append(
                Verdict(name, label, is_right, model=snapshot.version, who=annotator)
            )

    # In this order nothing is lost where the second step fails.
    if new_verdicts:
        host.learn(new_verdicts, None if row is None else {name: row})
    if withdrawn:
        host.undo(withdrawn)


async def _item(
    host: ModelHost, controls: Sequence[Control], task: Task, project: Project
) -> tuple[str, ItemFeatures | None]:
    """Return the name of a task's item, and its numbers where it is not in the collection."""
    references = [task.data.get("item")]
    references += [task.data.get(control.field) for control in controls]
    for reference in references:
        if not isinstance(reference, str):
            continue
        name = item_of(host.collection, reference)
        if name is not None:
            return name, None
    field = controls[0].field
    row, _ = await _features_and_tags(host, field, task)
    if row is None:
        raise UnknownItemError(
            f"There is no item for task {shown(task.id)}: its data name none of the collection, "
            "and have neither features nor a data URL."
        )
    host.check_features(row)
    return f"label-studio {project.id} {task.id}", row


def _labels(
    snapshot: Snapshot, controls: Sequence[Control], task: Task, prediction: Prediction
) -> Iterator[str]:
    """Yield the labels that a prediction or an annotation has, under their own names."""
    control_by_name = {control.name: control for control in controls}
    for result in prediction.result:
        control = control_by_name.get(str(result.get("from_name")))
        value = result.get("value")
        if control is None or not isinstance(value, Mapping):
            continue
        label_by_choice: dict[str, str] = {}
        for label, choice in control.labels(snapshot, task).items():
            label_by_choice[choice.path[-1]] = label
        paths = value.get(control.kind)
        if not isinstance(paths, list):
            continue
        for path in paths:
            name = path[-1] if isinstance(path, list) and path else path
            if not isinstance(name, str):
                continue
            stripped = name.strip()
            if 0 < len(stripped) <= 200:
                yield label_by_choice.get(name) or snapshot.find_label(stripped) or stripped
