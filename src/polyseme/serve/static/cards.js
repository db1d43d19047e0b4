// @ts-check
/**
 * What the panel beside the map says: of the whole space, a label, a tag set, a selection.
 *
 * In: JSON of the service, and what to do when something is chosen. Out: elements.
 */

import { add, h } from "./dom.js";
import { bar, count, icon, kindBadge, percent, plural } from "./parts.js";
import { SENSES } from "./colours.js";
import { untaggedLink } from "./items.js";

/**
 * A hash that leads to a label, such as `#/review/label/apple`.
 * @param {string} start
 * @param {string} label
 */
export function hashOf(start, label) {
  return `#/${start}/${encodeURIComponent(label)}`;
}

/** Tags of a set as small links to the map. @param {string[]} labels @param {string} [strong] */
export function tagSet(labels, strong) {
  return h("span.tagset",
    labels.map((label, i) => [
      i ? ", " : "",
      h("a", { href: hashOf("map/label", label), class: label === strong ? "strong" : null },
        label,
      ),
    ]),
  );
}

/**
 * A known tag set as one link to its place.
 * @param {{document: number, labels: string[]}} tagSet
 * @param {(tag: string) => boolean} [strong]
 */
export function setLink(tagSet, strong = () => false) {
  return h("a", {
      href: `#/map/document/${tagSet.document}`,
      aria_label: `Tag set: ${tagSet.labels.join(", ")}`,
    },
    tagSet.labels.map((tag, i) => [i ? " · " : "", strong(tag) ? h("span.strong", tag) : tag]),
  );
}

/** @param {string} title @param {...any} body */
function section(title, ...body) {
  return h("section.section", h("h2.minor", title), body);
}

/**
 * Rows of a label, a bar and a number.
 * @param {{label: string, part: number, text: string, title?: string}[]} rows
 */
function barList(rows) {
  return h("ul.barlist",
    rows.map((row) =>
      h("li", { title: row.title },
        h("a", { href: hashOf("map/label", row.label) }, row.label),
        bar(row.part),
        h("span.muted", row.text),
      ),
    ),
  );
}

/** The space as a whole. @param {any} model @param {import("./space.js").Space} space */
export function overview(model, space) {
  const frequent = [...space.labels.keys()]
    .map((i) => ({ label: space.labels[i], n: space.ofLabel(i).length }))
    .sort((a, b) => b.n - a.n)
    .slice(0, 24);
  return h("div.panel-body",
    h("header",
      h("h1.headword", "All known tag sets"),
      h("p.muted",
        `Every dot is a tag in the company of its tag set: ${plural(space.n, "dot")} of ${plural(space.labels.length, "label")} in ${plural(model.n_documents, "tag set")}. What lies close together is used alike.`,
      ),
    ),
    untaggedLink(model) && section("To review", h("div.row.actions", untaggedLink(model))),
    section("Kinds of labels",
      h("ul.kinds",
        Object.entries(model.kinds || {})
          .filter(([, n]) => n)
          .map(([kind, n]) => h("li", kindBadge(kind), h("span", count(n)))),
      ),
    ),
    section("Labels with most dots",
      h("div.chips",
        frequent.map((label) =>
          h("a.chip", { href: hashOf("map/label", label.label) }, label.label),
        ),
      ),
    ),
    h("p.muted.small",
      "Search for a label, tap a dot, or draw around some with the lasso. The key ? shows the keys.",
    ),
  );
}

/**
 * A label, as a dictionary has it: the word, its kind, its senses.
 * @param {any} card @param {object} actions
 * @param {(sense: number) => void} actions.sense go to the island of a sense
 * @param {{document: number, labels: string[]}[]} hits some of its tag sets
 */
export function labelCard(card, actions, hits) {
  const several = card.senses.length > 1;
  const facts = [plural(card.count, "tag set")];
  if (card.verdicts && card.verdicts.yes + card.verdicts.no)
    facts.push(plural(card.verdicts.yes + card.verdicts.no, "answer"));
  return h("div.panel-body",
    h("header",
      h("div.row",
        h("h1.headword", card.label),
        kindBadge(card.kind),
        card.blocked && h("span.kind", "blocked"),
      ),
      h("p.muted", facts.join(" · ")),
      quality(card),
    ),
    h("div.actions.actions-label",
      h("a.button.primary", { href: hashOf("review/label", card.label) }, "Review"),
      h("a.button", { href: hashOf("ask/tags", card.label) }, "Ask with this tag"),
      h("a.button", { href: hashOf("vocabulary", card.label) }, "Open in vocabulary"),
    ),
    section(
      several ? `${card.senses.length} senses` : "Sense",
      h("ol.senses",
        card.senses.map((/** @type {any} */ sense, /** @type {number} */ i) =>
          h("li", { style: { "--sense": `var(${SENSES[i % SENSES.length]})` } },
            h("button.sense-row", { title: "Show it on the map", onclick: () => actions.sense(i) },
              h("span.sense-number", h("span.sr", "Sense "), String(i + 1)),
              " ",
              h("span.sense-words", sense.words.join(", ")),
              " ",
              h("span.muted",
                count(sense.count),
                h("span.sr", sense.count === 1 ? " tag set" : " tag sets"),
              ),
            ),
            sense.example_sets?.length ? h("p.example", sense.example_sets[0].join(", ")) : null,
          ),
        ),
      ),
      several && card.silhouette !== null && card.silhouette !== undefined
        ? h("p.muted.small", { title: "Silhouette: 1 is wide apart, 0 is one heap" },
            `The senses lie ${card.silhouette > 0.5 ? "wide apart" : card.silhouette > 0.25 ? "apart" : "close together"} (silhouette ${card.silhouette.toFixed(2)}).`,
          )
        : null,
    ),
    card.companions?.length
      ? section("Stands beside",
          barList(
            card.companions.slice(0, 8).map((/** @type {any} */ companion) => ({
              label: companion.label,
              part: companion.share,
              text: percent(companion.share),
              title: `${percent(companion.share)} of its tag sets hold ${companion.label}`,
            })),
          ),
        )
      : null,
    card.similar?.length
      ? section("Used alike",
          h("div.chips",
            card.similar.map((/** @type {any} */ similar) =>
              h("a.chip",
                { href: hashOf("map/label", similar.label), title: `alike: ${similar.alike}` },
                similar.label,
              ),
            ),
          ),
        )
      : null,
    words("Also written", card.aliases),
    words("Implies", card.implies),
    hitList(`Tag sets with ${card.label}`, hits, card.count, card.label),
  );
}

/** @param {string} title @param {string[] | undefined} list */
function words(title, list) {
  return list?.length ? section(title, h("p", list.join(", "))) : null;
}

/** How well the label is ranked, if that is known. @param {any} card */
function quality(card) {
  const parts = [];
  if (card.quality !== null && card.quality !== undefined)
    parts.push(`C-MAP ${card.quality.toFixed(2)}`);
  if (card.quality_unseen !== null && card.quality_unseen !== undefined)
    parts.push(`${card.quality_unseen.toFixed(2)} if it were unseen`);
  if (!parts.length) return null;
  return h("p.muted", {
      title:
        "C-MAP on items held out: how high the items that carry the tag stand when all are ranked for it; 1 is best",
    },
    parts.join(" · "),
  );
}

/**
 * The hits as a list, for those who do not see or point.
 * @param {string} title
 * @param {{document: number, labels: string[]}[]} hits
 * @param {number} total
 * @param {string} [strong]
 */
function hitList(title, hits, total, strong) {
  if (!hits.length) return null;
  return section(title,
    h("ul.hits",
      hits.map((hit) =>
        h("li",
          setLink(hit, (tag) => tag === strong),
        ),
      ),
    ),
    total > hits.length ? h("p.muted.small", `${count(hits.length)} of ${count(total)}`) : null,
  );
}

/** One known tag set and those near it. @param {any} document */
export function documentCard(document) {
  return h("div.panel-body",
    h("header",
      h("p.muted", "Known tag set", document.id ? h("span.mono", ` ${document.id}`) : null),
      h("h1.headword.set", tagSet(document.labels)),
    ),
    h("div.row.actions",
      h("a.button", { href: `#/ask/tags/${document.labels.map(encodeURIComponent).join("/")}` },
        "Ask with these tags",
      ),
    ),
    document.neighbours?.length
      ? section("Nearest known tag sets",
          h("ol.near",
            document.neighbours.map((/** @type {any} */ neighbour) =>
              h("li",
                setLink(neighbour, (tag) => document.labels.includes(tag)),
                h("span.muted",
                  { title: "Distance in the concept space; the map shows it only roughly" },
                  neighbour.distance.toFixed(2),
                ),
              ),
            ),
          ),
        )
      : null,
  );
}

/**
 * What the tag sets of a selection share.
 * @param {any} shared
 * @param {{document: number, labels: string[]}[]} hits
 * @param {number} total
 */
export function selectionCard(shared, hits, total) {
  const body = h("div.panel-body",
    h("header",
      h("h1.headword", "Selection"),
      h("p.muted",
        total > shared.n
          ? `${plural(total, "tag set")}, of which ${count(shared.n)} were looked at.`
          : `${plural(shared.n, "tag set")}.`,
      ),
    ),
  );
  if (!shared.labels.length) add(body, h("p", "They share no tag."));
  else {
    add(body,
      section("Tags they share",
        barList(
          shared.labels.map((/** @type {any} */ label) => ({
            label: label.label,
            part: label.share,
            text: percent(label.share),
            title: `${plural(label.count, "tag set")}; ${label.lift.toFixed(1)} times as often as in all`,
          })),
        ),
      ),
    );
    const telling = [...shared.labels]
      .filter((label) => label.lift > 1.5)
      .sort((a, b) => b.lift * b.share - a.lift * a.share)
      .slice(0, 3);
    if (telling.length)
      add(body,
        h("p.muted.small",
          `More often here than elsewhere: ${telling.map((label) => `${label.label} (× ${label.lift.toFixed(1)})`).join(", ")}.`,
        ),
      );
  }
  add(body, hitList("Tag sets", hits, total));
  return body;
}

/** Where something landed. @param {{x: number, y: number, text: string}} ghost */
export function ghostCard(ghost) {
  return h("div.panel-body",
    h("header", h("h1.headword", "It lands here"), h("p.muted", ghost.text)),
    h("div.row.actions", h("a.button", { href: "#/ask" }, icon("back"), "Back to the question")),
  );
}
