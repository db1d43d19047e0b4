// @ts-check
/**
 * Care for the vocabulary: tags worth adding, and labels that may be the same.
 *
 * In: candidates and pairs of the service. Out: lists of rows, each with what can be done.
 */

import { add, clear, h } from "./dom.js";
import { count, empty, failed, icon, loading, plural, probabilityText } from "./parts.js";
import { additionByItems } from "./addtags.js";
import { labelHash, labelLink, spellingOf } from "./labelview.js";

/** @typedef {import("./api.js").Item} Item */
/** @typedef {import("./vocabulary.js").Vocabulary} Vocabulary */
/**
 * A tag outside the vocabulary: on items ("items"), or typed by people ("asked").
 * @typedef {{label: string, source: string, count: number}} Candidate
 */
/**
 * Labels that may be one, why, and how alike names, use and meaning are; null where not known.
 * @typedef {{label: string, into: string, reason: string} & Record<string, any>} Pair
 */

const MAX_PAIRS = 40; // of labels that may be the same, for each reason
const REASONS = {
  spelling: "Spelled alike",
  meaning: "Alike in meaning and use",
  use: "Used alike, often for other reasons",
};
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
      if (entries.length) this.draw(entries);
      else clear(this.list, this.emptyState());
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

  /** @param {T[]} entries */
  draw(entries) {
    const rows = entries.map((entry) => this.makeRow(entry));
    clear(this.list, h("ul.care-rows", rows));
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

/** Pairs of labels that may be one, by reason; those that are checked are merged. @extends CareList<Pair> */
export class MergeList extends CareList {
  /**
   * @param {HTMLElement} side
   * @param {Vocabulary} vocabulary
   */
  constructor(side, vocabulary) {
    super(side, vocabulary, "Labels that may mean the same. Check those that do.");
    /** Those that are checked, as they are to be merged. @type {Map<string, Pair>} */
    this.chosen = new Map();
    this.button = h("button.primary", { onclick: () => this.merge() });
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

  /** @param {Pair[]} pairs */
  draw(pairs) {
    this.chosen.clear();
    this.drawButton();
    const groups = Object.entries(REASONS).map(([reason, explanation]) => {
      const rows = pairs.filter((pair) => pair.reason === reason).map((pair) => this.makeRow(pair));
      if (!rows.length) return null;
      const title = h("h3", explanation);
      return h("section.stack.tight", { aria_label: explanation }, title, h("ul.care-rows", rows));
    });
    clear(this.list, h("div.stack", h("div.row", this.button), groups));
  }

  drawButton() {
    const { size } = this.chosen;
    this.button.textContent = size ? `Merge ${plural(size, "pair")}` : "Merge";
    this.button.disabled = !size || !this.vocabulary.mayAdmin;
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
   * Show a pair, and what can be done about it: choose, swap, or keep apart.
   * @param {HTMLElement} row
   * @param {Pair} pair
   */
  drawRow(row, pair) {
    const { label, into } = pair;
    const key = keyOf(pair);
    const swap = () => {
      const swapped = { ...pair, label: into, into: label };
      if (this.chosen.has(key)) this.chosen.set(key, swapped);
      this.drawRow(row, swapped);
    };
    const box = h("input", {
      type: "checkbox",
      checked: this.chosen.has(key),
      disabled: !this.vocabulary.mayAdmin,
      aria_label: `Merge ${label} into ${into}`,
      onchange: () => {
        if (box.checked) this.chosen.set(key, pair);
        else this.chosen.delete(key);
        this.drawButton();
      },
    });
    clear(row,
      box,
      h("div.grow",
        h("p", labelLink(label), " into ", labelLink(into)),
        h("p.muted.small", figuresText(pair)),
      ),
      h("div.row",
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

  merge() {
    const { api } = this.context;
    const pairs = [...this.chosen.values()].map(({ label, into }) => ({ label, into }));
    const run = () => api.post(api.model("merges"), { pairs });
    const [{ label, into }] = pairs;
    if (pairs.length > 1)
      return this.vocabulary.change(`${count(pairs.length)} pairs of labels were merged.`, run);
    const message = `“${label}” was merged into “${into}”.`;
    return this.vocabulary.change(message, run, { next: labelHash(into) });
  }

  /** @param {Pair} pair */
  keepApart(pair) {
    this.differentPairs.add(keyOf(pair));
    this.reread();
  }
}

/** Return the figures behind a pair, the one of its reason first. @param {Pair} pair */
function figuresText(pair) {
  const figures = Object.keys(REASONS).filter((name) => pair[name] !== null);
  figures.sort((name) => (name === pair.reason ? -1 : 0));
  return figures.map((name) => `${name} ${probabilityText(pair[name])}`).join(", ");
}

/** Return a key that is the same in both directions. @param {Pair} pair */
const keyOf = ({ label, into }) => JSON.stringify([label, into].sort());
