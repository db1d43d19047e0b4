// @ts-check
/**
 * How far probabilities can be believed: a diagram, its figures, and the thresholds of precisions.
 *
 * In: the reliability of the service. Out: elements.
 */

import { h, s } from "./dom.js";
import { count, percent, plural, probabilityText } from "./parts.js";

/**
 * Tags with about the same probability: which one on average, which share was true, how many.
 * @typedef {{predicted: number, observed: number, n: number}} Bin
 */
/**
 * From which probability on a precision is reached.
 * @typedef {{precision: number, seen: number | null, unseen: number | null}} Threshold
 */
/** @typedef {{seen: Bin[], unseen: Bin[], thresholds: Threshold[]}} Reliability */
/** @typedef {"seen" | "unseen"} MeasuredKind */

/** @type {Record<MeasuredKind, string>} */
export const KIND_NAMES = { seen: "Seen tags", unseen: "Unseen tags" };

/** @type {MeasuredKind[]} */
export const KINDS = ["seen", "unseen"];

const FEW = 10; // tags; the share of fewer that are true says little
const SIZE = 220; // of the diagram, without its axes
const LEFT = 40; // of the diagram: room for the axis
const TOP = 10;
const TICKS = [0, 0.25, 0.5, 0.75, 1];

/**
 * Return the section: what the diagram means, the diagram, its figures and the thresholds.
 * @param {Reliability} reliability
 */
export function showReliability(reliability) {
  const kinds = KINDS.filter((kind) => reliability[kind].length);
  if (!kinds.length) return h("p.muted", "Nothing was measured when this model was fitted.");
  const hasFew = kinds.some((kind) => reliability[kind].some(isFew));
  return [
    h("p.muted",
      "Each dot stands for tags with about the same probability, and shows how many of them were true. ",
      "On the dashed line the probabilities are right; below it they are too high. ",
      hasFew && `Faint dots stand for fewer than ${FEW} tags; the lines leave them out.`,
    ),
    h("div.reliability",
      diagram(reliability, kinds),
      h("div.series-names",
        kinds.map((kind) => h("span", { class: `series-name-${kind}` }, KIND_NAMES[kind])),
      ),
    ),
    h("details.fold", h("summary", "The figures"), figures(reliability, kinds)),
    reliability.thresholds.length > 0 && [
      h("h3", "Which precision you can ask for"),
      thresholdTable(reliability.thresholds),
    ],
  ];
}

/** @param {Bin} bin */
const isFew = (bin) => bin.n < FEW;

/* ------------------------------------------------------------------ tables */

/**
 * @param {string[]} names of the columns
 * @param {any} rows
 */
function table(names, rows) {
  const head = h("tr",
    names.map((name) => h("th", { scope: "col" }, name)),
  );
  return h("div.scroll-x", h("table.table", h("thead", head), h("tbody", rows)));
}

/**
 * @param {Reliability} reliability
 * @param {MeasuredKind[]} kinds
 */
function figures(reliability, kinds) {
  const rows = kinds.map((kind) => reliability[kind].map((bin) => figureRow(kind, bin)));
  return table(["Kind", "Probability", "True", "Tags"], rows);
}

/**
 * @param {string} kind
 * @param {Bin} bin
 */
function figureRow(kind, { predicted, observed, n }) {
  return h("tr",
    h("th", { scope: "row" }, kind),
    h("td", percent(predicted)),
    h("td", percent(observed)),
    h("td", count(n)),
  );
}

/** @param {Threshold[]} thresholds */
function thresholdTable(thresholds) {
  const rows = thresholds.map(({ precision, seen, unseen }) =>
    h("tr",
      h("th", { scope: "row" }, percent(precision)),
      thresholdCell(seen),
      thresholdCell(unseen),
    ),
  );
  return table(["Precision", "Seen tags from", "Unseen tags from"], rows);
}

/** @param {number | null} threshold */
function thresholdCell(threshold) {
  if (threshold === null) return h("td.muted", "not possible");
  return h("td", probabilityText(threshold));
}

/* ------------------------------------------------------------------ the diagram */

/** Return where a probability stands in the diagram. @param {number} share */
const xOf = (share) => LEFT + share * SIZE;

/** Return where a share of true tags stands in the diagram. @param {number} share */
const yOf = (share) => TOP + (1 - share) * SIZE;

/**
 * Draw predicted against observed; the area of a dot is how many tags it stands for.
 * @param {Reliability} reliability
 * @param {MeasuredKind[]} kinds
 */
function diagram(reliability, kinds) {
  const counts = kinds.flatMap((kind) => reliability[kind].map((bin) => bin.n));
  const highestCount = Math.max(...counts, 1);
  const summaries = kinds.map((kind) => gapSentence(kind, reliability[kind]));
  return s("svg.diagram",
    {
      viewBox: `0 0 ${LEFT + SIZE + 14} ${TOP + SIZE + 40}`,
      role: "img",
      aria_label: `Reliability: ${summaries.join("; ")}.`,
    },
    TICKS.map(gridLines),
    s("text.axis", { x: xOf(0.5), y: yOf(0) + 34, text_anchor: "middle" }, "probability given, %"),
    s("text.axis", { transform: `translate(10 ${yOf(0.5)}) rotate(-90)`, text_anchor: "middle" },
      "true, %",
    ),
    s("line.ideal", { x1: xOf(0), y1: yOf(0), x2: xOf(1), y2: yOf(1) }),
    kinds.map((kind) => series(kind, reliability[kind], highestCount)),
  );
}

/** @param {number} tick */
function gridLines(tick) {
  const percentage = String(tick * 100);
  return [
    s("line.grid", { x1: xOf(tick), x2: xOf(tick), y1: yOf(0), y2: yOf(1) }),
    s("line.grid", { x1: xOf(0), x2: xOf(1), y1: yOf(tick), y2: yOf(tick) }),
    s("text", { x: xOf(tick), y: yOf(0) + 16, text_anchor: "middle" }, percentage),
    s("text", { x: xOf(0) - 6, y: yOf(tick) + 4, text_anchor: "end" }, percentage),
  ];
}

/**
 * @param {MeasuredKind} kind
 * @param {Bin[]} bins
 * @param {number} highestCount
 */
function series(kind, bins, highestCount) {
  const corners = bins
    .filter((bin) => !isFew(bin))
    .map((bin) => `${xOf(bin.predicted).toFixed(1)},${yOf(bin.observed).toFixed(1)}`);
  return s("g.series", { class: `series-${kind}` },
    s("polyline", { points: corners.join(" ") }),
    bins.map((bin) => dot(kind, bin, bin.n / highestCount)),
  );
}

/**
 * A dot of the diagram; its tooltip has the figures.
 * @param {MeasuredKind} kind
 * @param {Bin} bin
 * @param {number} area from 0 to 1
 */
function dot(kind, bin, area) {
  const { predicted, observed, n } = bin;
  const radius = 2.5 + 4.5 * Math.sqrt(area);
  const title = `${KIND_NAMES[kind]}: probability ${percent(predicted)}, true ${percent(observed)}, of ${plural(n, "tag")}`;
  return s("circle",
    {
      class: isFew(bin) ? "few" : null,
      cx: xOf(predicted),
      cy: yOf(observed),
      r: radius.toFixed(1),
    },
    s("title", title),
  );
}

/**
 * Tell how far probabilities are off: the mean gap, weighted by tags (expected calibration error).
 * @param {MeasuredKind} kind
 * @param {Bin[]} bins
 */
function gapSentence(kind, bins) {
  let total = 0;
  let gap = 0;
  for (const { predicted, observed, n } of bins) {
    total += n;
    gap += n * Math.abs(predicted - observed);
  }
  return `${KIND_NAMES[kind]} are off by ${percent(gap / (total || 1))} on average`;
}
