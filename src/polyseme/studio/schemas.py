"""Bodies of requests and responses under `/v1`, checked and documented by pydantic.

In: JSON, or fields of a query or a form. Out: checked bodies, and the OpenAPI schemas of the same
names. Names and fields are the REST interface, which clients rely on; the limits bound what one
request may cost.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_NUMBERS = 65_536  # features of one item
MOST_TEXT_LETTERS = 1_000_000  # of one text
TAG_LETTERS = 200  # of one tag at the most
MOST_TAGS = 256  # of one item, or of one tag set
MOST_BATCH = 256  # items of a batch
MOST_VERDICTS = 10_000  # of a request
MOST_DOCUMENTS = 10_000  # tag sets that are added at once
MOST_NAMES = 1000  # items or labels that are named

Kind = Literal["seen", "unseen", "oov"]
Tag = Annotated[str, Field(min_length=1, max_length=TAG_LETTERS, pattern=r"^[^\x00-\x1f\x7f]*$")]
Name = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00]*$")]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-3e38, le=3e38)]
K = Annotated[int, Field(ge=1, le=1000)]
Share = Annotated[float, Field(ge=0, le=1)]
Precision = Annotated[float, Field(ge=0.01, le=0.99)]


class Body(BaseModel):
    """A body of a request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Encoded(Body):
    """A row of numbers as bytes."""

    base64: Annotated[str, Field(max_length=MOST_NUMBERS * 8)]
    dtype: Literal["float32"] = "float32"


class Thing(Body):
    """The subject of a request: features, a text, an item of the collection, or tags.

    Tags may come with one of the others.
    """

    features: Annotated[list[Number], Field(max_length=MOST_NUMBERS)] | Encoded | None = None
    text: Annotated[str, Field(min_length=1, max_length=MOST_TEXT_LETTERS)] | None = None
    item: Name | None = None
    tags: Annotated[list[Tag], Field(max_length=MOST_TAGS)] = []


class SuggestOptions(Body):
    """Which tags to return: how many, how likely, of which kinds."""

    k: K = 10
    threshold: Share | None = None
    precision: Precision | None = None
    kinds: Annotated[list[Kind], Field(min_length=1, max_length=3)] | None = None


class SuggestBody(Thing, SuggestOptions):
    """A question for tags."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tags": ["apple", "phone"], "k": 5}]}
    )


class BatchItem(Thing):
    """One item of a batch."""

    id: Name | None = None


class BatchBody(SuggestOptions):
    """Many questions at once."""

    items: Annotated[list[BatchItem], Field(min_length=1, max_length=MOST_BATCH)]


class CompleteBody(Body):
    """Tags to be completed."""

    tags: Annotated[list[Tag], Field(min_length=1, max_length=MOST_TAGS)]
    k: K = 10


class ExplainBody(Thing):
    """A label whose score is to be explained."""

    label: Tag
    k: Annotated[int, Field(ge=1, le=50)] = 5


class NeighboursBody(Thing):
    """A subject whose neighbours to return."""

    k: Annotated[int, Field(ge=1, le=100)] = 10


class DocumentsBody(Body):
    """Known documents, by their numbers."""

    documents: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=1_000_000)]


class VerdictBody(Body):
    """Yes or no to a label of an item, with the score and rank that were shown."""

    item: Name
    label: Tag
    answer: bool
    score: Share | None = None
    rank: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class LearnBody(Body):
    """Verdicts, and features of items that are not in the collection."""

    verdicts: Annotated[list[VerdictBody], Field(min_length=1, max_length=MOST_VERDICTS)]
    features: dict[Name, Annotated[list[Number], Field(max_length=MOST_NUMBERS)]] | None = None
    who: Annotated[str, Field(max_length=64)] | None = None
    # The last event that the reviewer has seen; later answers are not overwritten.
    seen: Annotated[int, Field(ge=0, lt=2**53)] | None = None


class UndoBody(Body):
    """Verdicts to take back."""

    numbers: Annotated[
        list[Annotated[int, Field(ge=1, lt=2**53)]], Field(min_length=1, max_length=MOST_VERDICTS)
    ]


class AskBody(Body):
    """What to look at next."""

    label: Tag | None = None
    k: Annotated[int, Field(ge=1, le=500)] = 30
    strategy: Literal["active", "likeliest", "random", "errors"] = "active"


class AddBody(Body):
    """New labels: by tag sets that hold them, by items, or by their names."""

    documents: Annotated[
        list[Annotated[list[Tag], Field(min_length=1, max_length=MOST_TAGS)]],
        Field(max_length=MOST_DOCUMENTS),
    ] = []
    label: Tag | None = None
    items: Annotated[list[Name], Field(max_length=MOST_NAMES)] = []
    labels: Annotated[list[Tag], Field(max_length=MOST_NAMES)] = []


class RenameBody(Body):
    """Another name for a label."""

    name: Tag


class MergeBody(Body):
    """The label that stands for both."""

    into: Tag


class LabelPair(Body):
    """A label, and the one to merge it into."""

    label: Tag
    into: Tag


class MergesBody(Body):
    """Labels to merge, all at once."""

    pairs: Annotated[list[LabelPair], Field(min_length=1, max_length=MOST_NAMES)]


class BlockBody(Body):
    """Whether the label may be suggested again."""

    undo: bool = False


class SidecarBody(Body):
    """Whether files are written, or only counted."""

    dry_run: bool = True


class StandingOut(BaseModel):
    """An answer that stands."""

    item: str
    label: str
    answer: bool
    who: str | None
    time: str | None
    number: int


class Problem(BaseModel):
    """What went wrong, in one sentence (`detail`)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str | None = None
    standing: list[StandingOut] | None = None  # with 409: the answers that stand


class SuggestionOut(BaseModel):
    """A label that may be true."""

    label: str
    probability: float
    kind: Kind


class PlaceOut(BaseModel):
    """A place on the map."""

    x: float
    y: float


class SuggestOut(BaseModel):
    """Ranked tags, and by which state of which model."""

    model: str
    version: str
    suggestions: list[SuggestionOut]
    unknown_tags: list[str]
    place: PlaceOut | None = None


class NumberedOut(BaseModel):
    """Numbers of verdicts, for `undo`, and the version that has learned them."""

    numbers: list[int]
    version: str


class VersionOut(BaseModel):
    """The version that answers now."""

    version: str


class AddedOut(VersionOut):
    """The labels and documents that were added."""

    added: list[str]
    documents: list[str]


class RefitOut(BaseModel):
    """The progress of a refit."""

    state: Literal["none", "running", "done", "failed"]
    rounds_done: int
    rounds: int
    reason: str | None


# What becomes a JSON object: the fields of the REST interface, by their names.
Record = dict[str, Any]
