// @ts-check
/**
 * Why a tag has its probability: parts that add up to the logit, and the known tag sets nearby.
 *
 * In: the service's Evidence. Out: an element.
 */

import { h } from "./dom.js";
import { percent, probabilityText } from "./parts.js";
import { tagSet, hashOf } from "./cards.js";

/** What a part stands for. @type {Record<string, string>} */
const ROLES = {
  frequency: "How frequent the tag is among known tag sets",
  features: "What the features say without the tags in between",
  tag: "A tag that the item has, or probably has",
  other_tags: "All other tags together",
  known: "Known tag sets close by",
  verdicts: "Answers that people gave",
};

/** A signed number with a true minus. @param {number} value */
function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

/** @param {any} evidence */
export function evidenceOf(evidence) {
  const widest = Math.max(
    0.01,
    ...evidence.parts.map((/** @type {any} */ part) => Math.abs(part.part)),
  );
  return h("div.evidence",
    evidence.implied_by
      ? h("p",
          "It follows from ",
          h("a", { href: hashOf("map/label", evidence.implied_by) }, evidence.implied_by),
          ".",
        )
      : null,
    h("ul.parts", { aria_label: `Parts of the logit of ${evidence.label}` },
      evidence.parts.map((/** @type {any} */ part) => partRow(part, widest)),
    ),
    h("p.sum",
      "Together ",
      h("strong", signed(evidence.logit)),
      h("span.muted", " on the logit scale, which is a probability of "),
      h("strong", probabilityText(evidence.probability)),
      ".",
    ),
    evidence.neighbours?.length ? neighbours(evidence) : null,
  );
}

/** @param {any} part @param {number} widest */
function partRow(part, widest) {
  const half = (Math.abs(part.part) / widest) * 50;
  const notes = [ROLES[part.role] || ""];
  if (part.probability !== null && part.probability !== undefined)
    notes.push(`has it with probability ${probabilityText(part.probability)}`);
  if (part.without !== null && part.without !== undefined)
    notes.push(`without it the tag would have ${probabilityText(part.without)}`);
  return h("li",
    { title: notes.filter(Boolean).join("; "), class: part.part < 0 ? "part-minus" : null },
    h("span", { class: part.role === "tag" ? "part-name part-tag" : "part-name" },
      part.name,
      part.probability !== null && part.probability !== undefined
        ? h("span.muted", ` ${probabilityText(part.probability)}`)
        : null,
    ),
    h("span.signed", { aria_hidden: "true" },
      h("span", { style: { width: `${half}%`, [part.part < 0 ? "right" : "left"]: "50%" } }),
    ),
    h("span.part-value", signed(part.part)),
  );
}

/** @param {any} evidence */
function neighbours(evidence) {
  return h("div.section",
    h("h3", "Nearest known tag sets"),
    h("ul.near",
      evidence.neighbours.map((/** @type {any} */ neighbour) =>
        h("li", {
            class: neighbour.holds ? "holds" : null,
            title: neighbour.ids?.length ? neighbour.ids.join(", ") : null,
          },
          tagSet(neighbour.labels, evidence.label),
          h("span.muted", {
              title: neighbour.holds
                ? "It holds the tag; the share that it has among those nearby"
                : "It does not hold the tag",
            },
            neighbour.holds ? percent(neighbour.share) : "without",
          ),
        ),
      ),
    ),
  );
}
