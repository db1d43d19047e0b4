// @ts-check
/**
 * Care for the vocabulary: tags worth adding, and labels that may be the same.
 *
 * In: candidates and pairs of the service. Out: lists of rows, each with what can be done.
 */

import { add, clear, h } from "./dom.js";
import { empty, failed, icon, loading, plural, probabilityText } from "./parts.js";
import { additionByItems } from "./addtags.js";
import { labelHash, labelLink, spellingOf } from "./labelview.js";

/** @typedef {import("./api.js").Item} Item */
/** @typedef {import("./vocabulary.js").Vocabulary} Vocabulary */
/**
 * A tag outside the vocabulary: on items ("items"), or typed by people ("asked").
 * @typedef {{label: string, source: string, count: number}} Candidate
 */
/**
 * Labels that may be one, and how alike their use is, from 0 to 1.
 * @typedef {{label: string, into: string, alike: number}} Pair
 */

const MAX_PAIRS = 40; // of labels that may be the same
const MAX_ITEMS = 200; // that carry a candidate

/** A list that is read at once, and again after a change. @template T */
class CareList {
  /**
   * @param {HTMLElement} side
   * @param {Vocabulary} vocabulary
   * @param {string} explanation
   */
  constructor(side, vocabulary, explanation) {
    this.vocabulary = vocabulary;
    this.context = vocabulary.context;
    this.hasLeft = false;
    this.list = h("div", loading());
    add(side, h("p.muted", explanation), this.list);
    this.reread();
  }

  leave() {
    this.hasLeft = true;
  }

  /** Read the list from the service, and show it. */
  async reread() {
    try {
      const entries = await this.read();
      if (this.hasLeft) return;
      const rows = entries.map((entry) => this.makeRow(entry));
      clear(this.list, rows.length ? h("ul.care-rows", rows) : this.emptyState());
    } catch (error) {
      if (!this.hasLeft)
        clear(this.list,
          failed(error, () => this.reread()),
        );
    }
  }

  /** @returns {Promise<T[]>} */
  async read() {
    return [];
  }

  /** @param {T} _entry @returns {HTMLElement} */
  makeRow(_entry) {
    return h("li");
  }

  emptyState() {
    return empty("Nothing to do");
  }
}

/** Tags outside the vocabulary. @extends CareList<Candidate> */
export class CandidateList extends CareList {
  /**
   * @param {HTMLElement} side
   * @param {Vocabulary} vocabulary
   */
  constructor(side, vocabulary) {
    super(side, vocabulary, "Tags outside the vocabulary, which items carry or people have typed.");
  }

  /** @returns {Promise<Candidate[]>} */
  async read() {
    const { api } = this.context;
    const { candidates } = await api.get(api.model("candidates"));
    return candidates;
  }

  emptyState() {
    return empty(
      "Nothing to add",
      "The vocabulary has all tags of the items, and all that people typed.",
    );
  }

  /** @param {Candidate} candidate */
  makeRow(candidate) {
    const { label, source, count } = candidate;
    const isOnItems = source === "items";
    const origin = isOnItems ? `on ${plural(count, "item")}` : `typed ${plural(count, "time")}`;
    return h("li.care-row",
      h("div.grow", h("strong", label), h("p.muted.small", origin)),
      h("button",
        {
          disabled: !this.vocabulary.mayAdmin,
          aria_label: `Add ${label}`,
          onclick: () => this.context.attempt(() => this.add(candidate)),
        },
        icon("plus"),
        isOnItems ? "Add" : "Add…",
      ),
    );
  }

  /**
   * Add a tag by the items that carry it; ask where there are none.
   * @param {Candidate} candidate
   */
  async add({ label, source }) {
    const { vocabulary, context } = this;
    if (source !== "items") return vocabulary.openAdd({ by: "sets", name: label });
    const ids = await this.itemsWith(label);
    if (!ids.length) return vocabulary.openAdd({ by: "items", name: label });
    const { run, revert } = additionByItems(context, label, ids);
    const message = `Added “${label}” by ${plural(ids.length, "item")}.`;
    await vocabulary.change(message, run, { next: labelHash(label), revert });
  }

  /** Return the ids of items that carry a tag. @param {string} label */
  async itemsWith(label) {
    const { api } = this.context;
    const params = { query: label, limit: MAX_ITEMS };
    /** @type {{items: Item[]}} */
    const { items } = await api.get(api.model("items"), { params });
    const spelling = spellingOf(label);
    const carrying = items.filter(({ tags }) => tags.some((tag) => spellingOf(tag) === spelling));
    return carrying.map((item) => item.id);
  }
}

/** Pairs of labels that are used alike. @extends CareList<Pair> */
export class MergeList extends CareList {
  /**
   * @param {HTMLElement} side
   * @param {Vocabulary} vocabulary
   */
  constructor(side, vocabulary) {
    super(side, vocabulary, "These labels are used so much alike that they may mean the same.");
  }

  /** Pairs that a person called different. @returns {Set<string>} */
  get differentPairs() {
    return (this.context.state.differentPairs ??= new Set());
  }

  /** @returns {Promise<Pair[]>} */
  async read() {
    const { api } = this.context;
    /** @type {{pairs: Pair[]}} */
    const { pairs } = await api.get(api.model("merges"), { params: { limit: MAX_PAIRS } });
    return pairs.filter((pair) => !this.differentPairs.has(keyOf(pair)));
  }

  emptyState() {
    return empty("No two labels are that alike");
  }

  /** @param {Pair} pair */
  makeRow(pair) {
    const row = h("li.care-row");
    this.drawRow(row, pair);
    return row;
  }

  /**
   * Show a pair, and what can be done about it: merge, swap, or keep apart.
   * @param {HTMLElement} row
   * @param {Pair} pair
   */
  drawRow(row, pair) {
    const { label, into, alike } = pair;
    const swap = () => this.drawRow(row, { label: into, into: label, alike });
    clear(row,
      h("div.grow",
        h("p", labelLink(label), " into ", labelLink(into)),
        h("p.muted.small", `alike ${probabilityText(alike)}`),
      ),
      h("div.row",
        h("button",
          {
            disabled: !this.vocabulary.mayAdmin,
            aria_label: `Merge ${label} into ${into}`,
            onclick: () => this.merge(pair),
          },
          "Merge",
        ),
        h("button.quiet",
          {
            aria_label: `Keep ${into}'s place: merge it into ${label} instead`,
            onclick: swap,
          },
          "Swap",
        ),
        h("button.quiet",
          {
            aria_label: `${label} and ${into} are different`,
            onclick: () => this.keepApart(pair),
          },
          "Different",
        ),
      ),
    );
  }

  /** @param {Pair} pair */
  merge({ label, into }) {
    const { api } = this.context;
    const run = () => api.post(api.model("labels", label, "merge"), { into });
    const message = `“${label}” was merged into “${into}”.`;
    return this.vocabulary.change(message, run, { next: labelHash(into) });
  }

  /** @param {Pair} pair */
  keepApart(pair) {
    this.differentPairs.add(keyOf(pair));
    this.reread();
  }
}

/** Return a key that is the same in both directions. @param {Pair} pair */
const keyOf = ({ label, into }) => JSON.stringify([label, into].sort());
