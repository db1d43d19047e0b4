// @ts-check
/**
 * What the panel beside the map says: of the whole space, a label, a tag set, a selection.
 *
 * In: JSON of the service, and what to do when something is chosen. Out: elements.
 */

import { h } from "./dom.js";
import { bar, count, icon, kindBadge, percent, plural } from "./parts.js";
import { SENSES } from "./colours.js";
import { untaggedLink } from "./items.js";

/** @typedef {import("./api.js").LabelCard} LabelCard */
/** @typedef {import("./api.js").Neighbour} Neighbour */
/** @typedef {import("./api.js").Sense} Sense */
/** @typedef {import("./api.js").TagSet} TagSet */
/**
 * A label of a selection.
 * @typedef {{label: string, count: number, share: number, lift: number}} SharedLabel
 */
/**
 * A label, how long its bar is, and what the bar means.
 * @typedef {{label: string, share: number, title: string}} BarRow
 */

const FREQUENT = 24; // labels in the overview
const COMPANIONS = 8; // labels that are named beside a label
const TELLING_LIFT = 1.5; // times as often as elsewhere

/**
 * Return a hash that leads to a label, such as `#/review/label/apple`.
 * @param {string} start
 * @param {string} label
 */
export function hashOf(start, label) {
  return `#/${start}/${encodeURIComponent(label)}`;
}

/* ------------------------------------------------------------------ parts */

/**
 * A label as a link to the map.
 * @param {string} label
 * @param {Record<string, any>} [props]
 */
const mapLink = (label, props = {}) =>
  h("a", { href: hashOf("map/label", label), ...props }, label);

/** A label as a chip that leads to the map. @param {string} label @param {string} [title] */
const chip = (label, title) => mapLink(label, { class: "chip", title });

/** The distance of a known tag set, with its meaning as tooltip. @param {number} distance */
export function distanceText(distance) {
  const title = "Distance in the concept space; the map shows it only roughly";
  return h("span.muted", { title }, distance.toFixed(2));
}

/**
 * Tags of a set as small links to the map.
 * @param {string[]} labels
 * @param {string} [strong] the one that stands out
 */
export function tagSet(labels, strong) {
  const links = labels.map((label) =>
    mapLink(label, { class: label === strong ? "strong" : null }),
  );
  return h("span.tagset", separated(links, ", "));
}

/**
 * A known tag set as one link to its place.
 * @param {TagSet} set
 * @param {(tag: string) => boolean} [isStrong]
 */
export function setLink({ document, labels }, isStrong = () => false) {
  const tags = labels.map((tag) => (isStrong(tag) ? h("span.strong", tag) : tag));
  const props = { href: `#/map/document/${document}`, aria_label: `Tag set: ${labels.join(", ")}` };
  return h("a", props, separated(tags, " · "));
}

/**
 * Elements with a text between them.
 * @param {any[]} elements
 * @param {string} separator
 */
function separated(elements, separator) {
  return elements.map((element, i) => (i ? [separator, element] : element));
}

/**
 * @param {string} title
 * @param {...any} content
 */
function section(title, ...content) {
  return h("section.section", h("h2.minor", title), content);
}

/** @param {BarRow[]} rows */
function barList(rows) {
  const items = rows.map(({ label, share, title }) =>
    h("li", { title }, mapLink(label), bar(share), h("span.muted", percent(share))),
  );
  return h("ul.barlist", items);
}

/**
 * A section with some labels as text; nothing where there are none.
 * @param {string} title
 * @param {string[] | undefined} labels
 */
function labelWords(title, labels) {
  return labels?.length ? section(title, h("p", labels.join(", "))) : null;
}

/**
 * Some tag sets as a list, for those who do not see or point.
 * @param {string} title
 * @param {TagSet[]} hits the tag sets that are listed
 * @param {number} total how many there are
 * @param {string} [strong] a tag that stands out
 */
function hitList(title, hits, total, strong) {
  if (!hits.length) return null;
  const rows = hits.map((hit) =>
    h("li",
      setLink(hit, (tag) => tag === strong),
    ),
  );
  const rest = `${count(hits.length)} of ${count(total)}`;
  return section(title, h("ul.hits", rows), total > hits.length && h("p.muted.small", rest));
}

/* ------------------------------------------------------------------ the whole space */

/**
 * The whole space: its sizes, its kinds of labels, and the frequent ones.
 * @param {any} model
 * @param {import("./space.js").Space} space
 */
export function overview(model, space) {
  const untagged = untaggedLink(model);
  return h("div.panel-body",
    h("header", h("h1.headword", "All known tag sets"), h("p.muted", spaceSentence(model, space))),
    untagged && section("To review", h("div.row.actions", untagged)),
    section("Kinds of labels", kindCounts(model.kinds || {})),
    section("Labels with most dots",
      h("div.chips",
        frequentLabels(space).map((label) => chip(label)),
      ),
    ),
    h("p.muted.small",
      "Search for a label, tap a dot, or draw around some with the lasso. The key ? shows the keys.",
    ),
  );
}

/**
 * @param {any} model
 * @param {import("./space.js").Space} space
 */
function spaceSentence({ n_documents }, { n, labels }) {
  const sizes = `${plural(n, "dot")} of ${plural(labels.length, "label")} in ${plural(n_documents, "tag set")}`;
  return `Each dot is one tag in one tag set: ${sizes}. Tags that are used in similar ways lie close together.`;
}

/** @param {Record<string, number>} kinds */
function kindCounts(kinds) {
  const present = Object.entries(kinds).filter(([, n]) => n);
  const rows = present.map(([kind, n]) => h("li", kindBadge(kind), h("span", count(n))));
  return h("ul.kinds", rows);
}

/** @param {import("./space.js").Space} space */
function frequentLabels(space) {
  const counts = space.labels.map((label, i) => ({ label, n: space.ofLabel(i).length }));
  counts.sort((a, b) => b.n - a.n);
  return counts.slice(0, FREQUENT).map(({ label }) => label);
}

/* ------------------------------------------------------------------ a label */

/**
 * A label, as a dictionary has it: the word, its kind, its senses.
 * @param {LabelCard} card
 * @param {(sense: number) => void} showSense goes to the island of a sense
 * @param {TagSet[]} hits some of its tag sets
 */
export function labelCard(card, showSense, hits) {
  const { label, companions, similar } = card;
  const frequent = companions.slice(0, COMPANIONS).map((companion) => ({
    ...companion,
    title: `${percent(companion.share)} of its tag sets hold ${companion.label}`,
  }));
  const chips = similar.map((other) => chip(other.label, `alike in ${other.reason}`));
  return h("div.panel-body",
    labelHead(card),
    labelActions(label),
    senseSection(card, showSense),
    frequent.length > 0 && section("Often together with", barList(frequent)),
    chips.length > 0 && section("Perhaps the same", h("div.chips", chips)),
    labelWords("Also written", card.aliases),
    labelWords("Implies", card.implies),
    hitList(`Tag sets with ${label}`, hits, card.count, label),
  );
}

/** The label as a headword, with its sizes and how well it is ranked. @param {LabelCard} card */
function labelHead(card) {
  const { yes, no } = card.verdicts;
  const facts = [plural(card.count, "tag set")];
  if (yes + no) facts.push(plural(yes + no, "answer"));
  return h("header",
    h("div.row",
      h("h1.headword", card.label),
      kindBadge(card.kind),
      card.blocked && h("span.kind", "blocked"),
    ),
    h("p.muted", facts.join(" · ")),
    qualityLine(card),
  );
}

/** @param {string} label */
function labelActions(label) {
  return h("div.actions.actions-label",
    h("a.button.primary", { href: hashOf("review/label", label) }, "Review"),
    h("a.button", { href: hashOf("ask/tags", label) }, "Ask with this tag"),
    h("a.button", { href: hashOf("vocabulary", label) }, "Open in vocabulary"),
  );
}

/** How well the label is ranked, if that is known. @param {LabelCard} card */
function qualityLine({ quality, quality_unseen }) {
  const parts = [];
  if (isNumber(quality)) parts.push(`C-MAP ${percent(quality)}`);
  if (isNumber(quality_unseen)) parts.push(`${percent(quality_unseen)} when made unseen`);
  if (!parts.length) return null;
  const title =
    "C-MAP on held-out items: how high the items that carry the tag stand when all are ranked for it; 100 % is best";
  return h("p.muted", { title }, parts.join(", "));
}

/** @param {number | null | undefined} value */
const isNumber = (value) => value !== null && value !== undefined;

/**
 * @param {LabelCard} card
 * @param {(sense: number) => void} showSense
 */
function senseSection({ senses, silhouette }, showSense) {
  const areSeveral = senses.length > 1;
  const rows = senses.map((sense, i) => senseRow(sense, i, showSense));
  return section(
    areSeveral ? `${senses.length} senses` : "Sense",
    h("ol.senses", rows),
    areSeveral && isNumber(silhouette) && silhouetteLine(Number(silhouette)),
  );
}

/**
 * A sense: its colour, its words, how many tag sets it has, and one of them.
 * @param {Sense} sense
 * @param {number} index
 * @param {(sense: number) => void} showSense
 */
function senseRow(sense, index, showSense) {
  const example = sense.example_sets?.[0];
  const unit = sense.count === 1 ? " tag set" : " tag sets";
  return h("li", { style: { "--sense": `var(${SENSES[index % SENSES.length]})` } },
    h("button.sense-row", { title: "Show it on the map", onclick: () => showSense(index) },
      h("span.sense-number", h("span.sr", "Sense "), String(index + 1)),
      " ",
      h("span.sense-words", sense.words.join(", ")),
      " ",
      h("span.muted", count(sense.count), h("span.sr", unit)),
    ),
    example && h("p.example", example.join(", ")),
  );
}

/** @param {number} silhouette */
function silhouetteLine(silhouette) {
  const title = "Silhouette: 1 is wide apart, 0 is one heap";
  const text = `The senses lie ${distanceWords(silhouette)} (silhouette ${silhouette.toFixed(2)}).`;
  return h("p.muted.small", { title }, text);
}

/** How far senses lie apart, in words. @param {number} silhouette from -1 to 1 */
function distanceWords(silhouette) {
  if (silhouette > 0.5) return "wide apart";
  return silhouette > 0.25 ? "apart" : "close together";
}

/* ------------------------------------------------------------------ tag sets */

/**
 * One known tag set and those near it.
 * @param {{id: string | null, labels: string[], neighbours: Neighbour[]}} document
 */
export function documentCard({ id, labels, neighbours }) {
  const address = labels.map(encodeURIComponent).join("/");
  const rows = neighbours.map((neighbour) =>
    h("li",
      setLink(neighbour, (tag) => labels.includes(tag)),
      distanceText(neighbour.distance),
    ),
  );
  return h("div.panel-body",
    h("header",
      h("p.muted", "Known tag set", id && h("span.mono", ` ${id}`)),
      h("h1.headword.set", tagSet(labels)),
    ),
    h("div.row.actions", h("a.button", { href: `#/ask/tags/${address}` }, "Ask with these tags")),
    rows.length > 0 && section("Nearest known tag sets", h("ol.near", rows)),
  );
}

/**
 * What the tag sets of a selection share.
 * @param {{n: number, labels: SharedLabel[]}} shared
 * @param {TagSet[]} hits some of the tag sets
 * @param {number} total of the tag sets
 */
export function selectionCard({ n, labels }, hits, total) {
  const isSample = total > n;
  const sample = `${plural(total, "tag set")}, of which ${count(n)} were looked at.`;
  return h("div.panel-body",
    h("header",
      h("h1.headword", "Selection"),
      h("p.muted", isSample ? sample : `${plural(n, "tag set")}.`),
    ),
    labels.length ? sharedTags(labels) : h("p", "They share no tag."),
    hitList("Tag sets", hits, total),
  );
}

/**
 * The tags of a selection, and those that tell it from all others.
 * @param {SharedLabel[]} labels
 */
function sharedTags(labels) {
  const rows = labels.map((shared) => ({
    label: shared.label,
    share: shared.share,
    title: `${plural(shared.count, "tag set")}; ${shared.lift.toFixed(1)} times as often as in all`,
  }));
  const telling = labels
    .filter(({ lift }) => lift > TELLING_LIFT)
    .sort((a, b) => b.lift * b.share - a.lift * a.share) // frequent here, and rare elsewhere
    .slice(0, 3)
    .map(({ label, lift }) => `${label} (× ${lift.toFixed(1)})`);
  return [
    section("Tags they share", barList(rows)),
    telling.length > 0 &&
      h("p.muted.small", `More often here than elsewhere: ${telling.join(", ")}.`),
  ];
}

/** Where something landed. @param {{text: string}} ghost */
export function ghostCard({ text }) {
  return h("div.panel-body",
    h("header", h("h1.headword", "It lands here"), h("p.muted", text)),
    h("div.row.actions", h("a.button", { href: "#/ask" }, icon("back"), "Back to the question")),
  );
}
