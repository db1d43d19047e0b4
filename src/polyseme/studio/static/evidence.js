// @ts-check
/**
 * Why a tag has its probability: parts that add up to the logit, and the known tag sets nearby.
 *
 * In: the service's Evidence. Out: an element.
 */

import { h } from "./dom.js";
import { percent, probabilityText } from "./parts.js";
import { hashOf, tagSet } from "./cards.js";

/**
 * What one cause adds to the logit.
 * @typedef {object} Part
 * @property {string} name
 * @property {string} role a key of ROLES
 * @property {number} part what it adds
 * @property {number | null} [probability] of the tag that it stands for
 * @property {number | null} [without] the probability of the result without it
 */
/**
 * A known tag set nearby.
 * @typedef {object} NearSet
 * @property {string[]} labels
 * @property {string[]} [ids] of documents with these labels
 * @property {boolean} holds whether it holds the tag
 * @property {number} share of its vote among those nearby
 */
/**
 * What the service answers to `explain`.
 * @typedef {object} Evidence
 * @property {string} label
 * @property {number} logit
 * @property {number} probability
 * @property {string | null} [implied_by]
 * @property {Part[]} parts
 * @property {NearSet[]} [neighbours]
 */

/** What a part stands for. @type {Record<string, string>} */
const ROLES = {
  frequency: "How frequent the tag is among known tag sets",
  features: "What the features say without the tags in between",
  tag: "A tag that the item has, or probably has",
  other_tags: "All other tags together",
  known: "Known tag sets close by",
  name: "How like the item and the tag's name are",
  verdicts: "Answers that people gave",
};

/** Return a signed number with a true minus. @param {number} value */
function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

/** @param {number | null | undefined} value */
const isNumber = (value) => value !== null && value !== undefined;

/**
 * Show evidence: the parts, their sum, and the known tag sets nearby.
 * @param {Evidence} evidence
 */
export function evidenceOf(evidence) {
  const { label, logit, probability, implied_by, parts, neighbours } = evidence;
  const widest = Math.max(0.01, ...parts.map(({ part }) => Math.abs(part)));
  const rows = parts.map((part) => partRow(part, Math.abs(part.part) / widest));
  return h("div.evidence",
    implied_by && h("p", "It follows from ", mapLink(implied_by), "."),
    h("ul.parts", { aria_label: `Parts of the logit of ${label}` }, rows),
    h("p.sum",
      "Together ",
      h("strong", signed(logit)),
      h("span.muted", " on the logit scale, which is a probability of "),
      h("strong", probabilityText(probability)),
      ".",
    ),
    neighbours?.length && nearSets(label, neighbours),
  );
}

/** @param {string} label */
const mapLink = (label) => h("a", { href: hashOf("map/label", label) }, label);

/**
 * A part with its bar, to the left where it speaks against the tag.
 * @param {Part} part
 * @param {number} length of its bar, from 0 to 1
 */
function partRow(part, length) {
  const isNegative = part.part < 0;
  const barStyle = { width: `${50 * length}%`, [isNegative ? "right" : "left"]: "50%" };
  return h("li", { title: notesOf(part).join("; "), class: isNegative ? "part-minus" : null },
    h("span.part-name", { class: part.role === "tag" ? "part-tag" : null },
      part.name,
      isNumber(part.probability) && h("span.muted", ` ${probabilityText(part.probability)}`),
    ),
    h("span.signed", { aria_hidden: "true" }, h("span", { style: barStyle })),
    h("span.part-value", signed(part.part)),
  );
}

/** @param {Part} part */
function notesOf({ role, probability, without }) {
  const notes = ROLES[role] ? [ROLES[role]] : [];
  if (isNumber(probability)) notes.push(`has it with probability ${probabilityText(probability)}`);
  if (isNumber(without)) notes.push(`without it the tag would have ${probabilityText(without)}`);
  return notes;
}

/**
 * @param {string} label
 * @param {NearSet[]} sets
 */
function nearSets(label, sets) {
  const rows = sets.map((set) => nearRow(label, set));
  return h("div.section", h("h3", "Nearest known tag sets"), h("ul.near", rows));
}

/**
 * @param {string} label
 * @param {NearSet} set
 */
function nearRow(label, { labels, ids = [], holds, share }) {
  const meaning = holds
    ? "It holds the tag; the share that it has among those nearby"
    : "It does not hold the tag";
  return h("li", { class: holds ? "holds" : null, title: ids.length ? ids.join(", ") : null },
    tagSet(labels, label),
    h("span.muted", { title: meaning }, holds ? percent(share) : "without"),
  );
}
