"""Label Studio's interface to a machine learning backend.

In: tasks with a labelling configuration. Out: predictions for its `Choices` and `Taxonomy`; what
annotators make of them is learned as answers. The backend of a model is `/label-studio/MODEL`.

Terms, as Label Studio has them: a *configuration* is XML that lays out an annotator's page. Its
*objects* show fields of a task's data; in its *controls* annotators make choices about an object. A
*result* is what was chosen in one control; `predictions` and `annotations` are lists of results.
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
from polyseme.studio.http import PROBLEMS, Host, Reviewer, extract_text, json_response
from polyseme.studio.references import features_of_reference, item_of, known_tags
from polyseme.studio.schemas import MOST_NUMBERS, MOST_TEXT_LETTERS, TAG_LETTERS

MOST_TASKS = 256  # in one request
MOST_LABELS = 1000  # that are ranked for a task
_TASKS_AT_A_TIME = 32
_THRESHOLD = 0.5  # of the probability of a choice, unless the request has its own
_XML_BYTES = 2**21
_MOST_LEVELS = 20  # of choices below choices
# The elements of a configuration that are controls, and what results call them.
_KIND_BY_ELEMENT = {"Choices": "choices", "Taxonomy": "taxonomy"}
_MOST_WAITING = 1024  # annotations
_log = logging.getLogger("polyseme.studio")
# Annotations are learned one after the other, in the order in which they came.
_turns: WeakKeyDictionary[ModelHost, asyncio.Lock] = WeakKeyDictionary()
# Annotations that are not learned yet; the set also keeps their tasks from being collected.
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

    threshold: Annotated[float, Field(ge=0, le=1)] = _THRESHOLD


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
    """Something that can be chosen in a control."""

    path: tuple[str, ...]  # as results have it: its alias or text, after those of all above it
    shown: str  # its text on the annotator's page


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
        The field of a task's data that lists further choices; empty where there are none.
    single : bool
        Whether only one can be chosen.
    """

    kind: str
    name: str
    object_name: str
    field: str
    choices: tuple[TagChoice, ...]
    options: str
    single: bool

    def value(self, path: Sequence[str]) -> Any:
        """Return the path of a choice as results of this control have it."""
        if self.kind == "choices":
            return path[-1]
        return list(path)

    def labels(self, snapshot: Snapshot, task: Task) -> dict[str, TagChoice]:
        """Return the choices of a task by the model's labels that they stand for.

        Choices that stand for no label are left out.
        """
        choice_by_label: dict[str, TagChoice] = {}
        listed_choices = _read_options(task.data.get(self.options))
        for choice in (*self.choices, *listed_choices):
            label = snapshot.find_label(choice.path[-1]) or snapshot.find_label(choice.shown)
            if label is not None:
                choice_by_label[label] = choice
        return choice_by_label


def read_config(xml: str | None) -> list[Control]:
    """Return the controls of a labelling configuration in which labels can be chosen.

    Raises
    ------
    InputError
        Where there is none, or one belongs to no object that shows something.
    """
    if not xml:
        raise InputError("The labelling configuration is missing.")
    root = parse_xml(xml.encode(), "The labelling configuration")
    field_by_object = _fields_by_object(root)
    controls = [_read_control(element, field_by_object) for element in root.iter(*_KIND_BY_ELEMENT)]
    if not controls:
        raise InputError(
            "The labelling configuration has neither <Choices> nor <Taxonomy>, by which labels "
            "could be given."
        )
    return controls


def _fields_by_object(root: Any) -> dict[str, str]:
    """Return the field of a task's data that each object of a configuration shows, by its name.

    `<Image name="photo" value="$url">` shows the field `url`.
    """
    field_by_object: dict[str, str] = {}
    for element in root.iter():
        element_name = element.tag
        is_comment = not isinstance(element_name, str)
        if is_comment or element_name in _KIND_BY_ELEMENT:
            continue
        name = element.get("name")
        value = element.get("value", "")
        if name and value.startswith("$"):
            field_by_object[name] = value[1:]
    return field_by_object


def _read_control(element: Any, field_by_object: Mapping[str, str]) -> Control:
    """Return one control of a labelling configuration.

    Parameters
    ----------
    element : Element
        `<Choices>` or `<Taxonomy>`.
    field_by_object : mapping of str to str
        See `_fields_by_object`.

    Raises
    ------
    InputError
        Where it has no name, or is for no object that shows something.
    """
    name = element.get("name") or ""
    to_name = element.get("toName") or ""
    targets = [target.strip() for target in to_name.split(",")]
    object_name = next((target for target in targets if target in field_by_object), None)
    if not name or object_name is None:
        object_names = first_few(sorted(field_by_object)) or "none"
        raise InputError(
            f"<{element.tag}> '{name}' of the labelling configuration goes to "
            f"'{', '.join(targets)}' (toName), which shows nothing; what is shown: {object_names}."
        )
    options = element.get("value") or ""
    return Control(
        kind=_KIND_BY_ELEMENT[element.tag],
        name=name,
        object_name=object_name,
        field=field_by_object[object_name],
        choices=tuple(_choices(element, ())),
        options=options.lstrip("$"),
        single=element.tag == "Choices" and element.get("choice", "single") != "multiple",
    )


def _choices(element: Any, above: tuple[str, ...]) -> Iterator[TagChoice]:
    """Yield the choices below an element, whose own path is `above`, from the top down."""
    for child in element.iterchildren("Choice"):
        alias = child.get("alias")
        text = child.get("value") or alias
        if text and len(above) < _MOST_LEVELS:
            path = (*above, alias or text)
            yield TagChoice(path, text)
            yield from _choices(child, path)


def check_config(host: ModelHost, xml: str | None) -> None:
    """Raise an `InputError` where a configuration could not show predictions of a model."""
    for control in read_config(xml):
        # A taxonomy takes further choices, and a task's data may list some.
        is_closed = control.kind == "choices" and not control.options
        if not is_closed or control.labels(host.snapshot, Task()):
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
    threshold = _THRESHOLD
    if body.params is not None:
        threshold = body.params.threshold
    results: list[dict[str, Any]] = []
    # Not all at a time: the files and texts of others wait in the same queue.
    for first in range(0, len(body.tasks), _TASKS_AT_A_TIME):
        tasks = body.tasks[first : first + _TASKS_AT_A_TIME]
        predictions = [_predict_task(host, controls, task, threshold) for task in tasks]
        results += await asyncio.gather(*predictions)
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
    """Return Label Studio's record of a task's prediction: a result for every control."""
    snapshot = host.snapshot
    results: list[dict[str, Any]] = []
    scores: list[float] = []
    for control in controls:
        snapshot, suggestions = await _suggest_for_control(host, control, task)
        choices = _select_choices(snapshot, control, task, suggestions, threshold)
        if not choices:
            continue
        values = [value for value, _ in choices]
        scores += [probability for _, probability in choices]
        results.append(
            {
                "from_name": control.name,
                "to_name": control.object_name,
                "type": control.kind,
                "value": {control.kind: values},
            }
        )
    # Label Studio sorts tasks by it.
    score = float(np.mean(scores)) if scores else 0.0
    return {"model_version": snapshot.version, "score": round(score, 6), "result": results}


async def _suggest_for_control(
    host: ModelHost, control: Control, task: Task
) -> tuple[Snapshot, list[Suggestion]]:
    """Return suggestions for a control's object, the likeliest first; none where it is unknown.

    The task's own tags come first, with a probability of 1.
    """
    try:
        features, tags = await _features_and_tags(host, control.field, task)
        if features is not None or tags:
            request = SuggestRequest(features, tuple(tags), MOST_LABELS)
            query, _ = host.check(request)
            snapshot, suggestions = await host.scoring.submit(query)
            own_tags: list[Suggestion] = []
            for label in query.tags:
                kind = snapshot.kinds.get(label)
                if kind is not None:
                    own_tags.append(Suggestion(label, 1.0, kind))
            return snapshot, [*own_tags, *suggestions]
    except InputError as error:
        _log.info("%s: task %s has no prediction: %s", host.name, task.id, error)
    return host.snapshot, []


async def _features_and_tags(
    host: ModelHost, field: str, task: Task
) -> tuple[ItemFeatures | None, list[str]]:
    """Return the features of the object that shows a field, and the task's tags.

    Features are a list of numbers (in `features` or in the field), the item that `item` or the
    field names, the content of a data URL or, for a model of texts, the field itself; None where
    the field is a text of tags, or unknown.
    """
    content = task.data.get(field)
    item = task.data.get("item")
    tags = _tags_of(host, task)
    for numbers in (task.data.get("features"), content):
        if isinstance(numbers, list):
            return _read_numbers(numbers), tags
    if isinstance(item, str):
        return await features_of_reference(host, item), tags
    if not isinstance(content, str):
        return None, tags
    if content.startswith("data:") or item_of(host.collection, content) is not None:
        return await features_of_reference(host, content), tags
    if host.takes_texts:
        return await extract_text(content[:MOST_TEXT_LETTERS], host), tags
    return None, [*tags, *known_tags(host, content)]  # a text of tags


def _tags_of(host: ModelHost, task: Task) -> list[str]:
    """Return the labels that `tags` of a task's data stand for, a text or a list of texts."""
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


def _read_numbers(values: list[Any]) -> ItemFeatures:
    """Return numbers of a task's data as features, (n_features,)."""
    are_numbers = all(isinstance(value, (int, float)) for value in values)
    if not are_numbers or len(values) > MOST_NUMBERS:
        raise InputError(f"`features` of a task must be {MOST_NUMBERS} numbers at the most.")
    with np.errstate(over="ignore"):  # reported as infinity
        features = np.asarray(values, dtype=np.float64)
        return features.astype(np.float32)


def _select_choices(
    snapshot: Snapshot,
    control: Control,
    task: Task,
    suggestions: Iterable[Suggestion],
    threshold: float,
) -> list[tuple[Any, float]]:
    """Return what a control shows as chosen: values of a result, each with its probability.

    A control of a single choice shows the likeliest, however likely it is.
    """
    choice_by_label = control.labels(snapshot, task)
    likely: list[tuple[Any, float]] = []
    for suggestion in suggestions:
        label = suggestion.label
        choice = choice_by_label.get(label)
        if choice is None and control.kind == "taxonomy":
            choice = TagChoice((label,), label)  # annotators may add labels to a taxonomy
        if choice is None:
            continue
        if control.single or suggestion.probability >= threshold:
            likely.append((control.value(choice.path), suggestion.probability))
    return likely[:1] if control.single else likely


def _read_options(options: Any) -> Iterator[TagChoice]:
    """Yield the choices that a task's data list, as texts or as `{"value": …, "alias": …}`."""
    if not isinstance(options, list):
        return
    for option in options:
        fields = option if isinstance(option, Mapping) else {"value": option}
        text = fields.get("value") or fields.get("alias")
        chosen_name = fields.get("alias") or text
        if isinstance(chosen_name, str) and isinstance(text, str):
            yield TagChoice((chosen_name,), text)


# ---------------------------------------------------------------------- learning


def _remove_waiting(learning: asyncio.Task[None]) -> None:
    """Remove an annotation that is learned, or cannot be; its error has been logged."""
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
    """Learn the labels of an annotation, about the item that its task shows."""
    task = body.task
    assert task is not None
    controls = await run_in_threadpool(read_config, body.project.label_config)
    name, features = await _find_item(host, controls, task, body.project)
    await run_in_threadpool(_learn_answers, host, body, controls, name, features)


def _learn_answers(
    host: ModelHost,
    body: WebhookBody,
    controls: Sequence[Control],
    name: str,
    features: ItemFeatures | None,
) -> None:
    """Learn the labels of an annotation as right, and predicted ones that it lacks as wrong.

    What the same annotation said before, and does not say any more, is taken back. `name` and
    `features` are those of `_find_item`.
    """
    task = body.task
    annotation = body.annotation
    assert task is not None and annotation is not None
    # The name under which the log has verdicts; the same annotation is found again by it.
    annotator = f"label-studio {body.project.id} {annotation.id}"
    snapshot = host.snapshot
    answers: dict[str, bool] = {}
    if body.action != "ANNOTATION_DELETED" and not annotation.was_cancelled:
        prediction = annotation.prediction or Prediction()
        predicted_labels = _chosen_labels(snapshot, controls, task, prediction)
        annotated_labels = _chosen_labels(snapshot, controls, task, annotation)
        answers = dict.fromkeys(predicted_labels, False)
        answers |= dict.fromkeys(annotated_labels, True)

    standing_by_label: dict[str, Verdict] = {}
    for verdict in snapshot.verdicts_by_item.get(name, ()):
        if verdict.who == annotator:
            standing_by_label[snapshot.current_label(verdict.label)] = verdict
    withdrawn_numbers: list[int] = []
    for label, verdict in standing_by_label.items():
        if verdict.number is not None and answers.get(label) != verdict.answer:
            withdrawn_numbers.append(verdict.number)
    new_verdicts: list[Verdict] = []
    for label, is_right in answers.items():
        standing = standing_by_label.get(label)
        if standing is None or standing.answer != is_right:
            new_verdicts.append(
                Verdict(name, label, is_right, model=snapshot.version, who=annotator)
            )

    # In this order nothing is lost where the second step fails.
    if new_verdicts:
        host.learn(new_verdicts, None if features is None else {name: features})
    if withdrawn_numbers:
        host.undo(withdrawn_numbers)


async def _find_item(
    host: ModelHost, controls: Sequence[Control], task: Task, project: Project
) -> tuple[str, ItemFeatures | None]:
    """Return the name of a task's item, and its features where it is not in the collection.

    Such an item is named after its project and its task.
    """
    references = [task.data.get("item")]
    references += [task.data.get(control.field) for control in controls]
    for reference in references:
        if not isinstance(reference, str):
            continue
        name = item_of(host.collection, reference)
        if name is not None:
            return name, None
    field = controls[0].field
    features, _ = await _features_and_tags(host, field, task)
    if features is None:
        raise UnknownItemError(
            f"There is no item for task {shown(task.id)}: its data name none of the collection, "
            "and have neither features nor a data URL."
        )
    host.check_features(features)
    return f"label-studio {project.id} {task.id}", features


def _chosen_labels(
    snapshot: Snapshot, controls: Sequence[Control], task: Task, prediction: Prediction
) -> Iterator[str]:
    """Yield the labels that were chosen in a prediction or an annotation.

    Choices that no label is known for are yielded as they are, as new labels.
    """
    control_by_name = {control.name: control for control in controls}
    for result in prediction.result:
        control = control_by_name.get(str(result.get("from_name")))
        value = result.get("value")
        if control is None or not isinstance(value, Mapping):
            continue
        label_by_choice: dict[str, str] = {}
        for label, choice in control.labels(snapshot, task).items():
            label_by_choice[choice.path[-1]] = label
        choices = value.get(control.kind)  # names, or paths of a taxonomy
        if not isinstance(choices, list):
            continue
        for choice_path in choices:
            is_path = isinstance(choice_path, list) and len(choice_path) > 0
            name = choice_path[-1] if is_path else choice_path
            if not isinstance(name, str):
                continue
            stripped = name.strip()
            if 0 < len(stripped) <= TAG_LETTERS:
                yield label_by_choice.get(name) or snapshot.find_label(stripped) or stripped
