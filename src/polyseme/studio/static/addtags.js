// @ts-check
/**
 * The dialog that adds tags: by tag sets, by items that carry them, or by name.
 *
 * In: what a person types and chooses. Out: an `Addition`, which the vocabulary carries out.
 */

import { clear, debounce, h } from "./dom.js";
import { isAbort } from "./api.js";
import { dialog, dialogEnd, failed, field, form, icon, loading, plural } from "./parts.js";
import { segments, submitButton } from "./parts.js";
import { picture } from "./items.js";
import { MAX_LENGTH, spellingOf } from "./labelview.js";

/** @typedef {import("./api.js").Item} Item */
/** @typedef {import("./api.js").Verdict} Verdict */
/** @typedef {import("./app.js").Context} Context */
/** How tags are added. @typedef {"sets" | "items" | "name"} Way */
/** What the dialog begins with. @typedef {{by?: Way, name?: string}} Prefill */
/**
 * Tags to be added, and how.
 * @typedef {object} Addition
 * @property {string[]} labels that will be new
 * @property {number} nSets tag sets that will be added
 * @property {() => Promise<any>} run adds them
 * @property {() => Promise<any>} [revert] takes them back, where restoring a version does not
 */
/**
 * Closes the dialog with an addition; with nothing where it is cancelled.
 * @typedef {(addition?: Addition) => void} Close
 */

const PARALLEL = 8; // requests at a time that ask whether a tag is known
const ITEMS = 24; // to choose from
const MAX_VERDICTS = 1000; // of a label, among which those of an addition are found

/**
 * Ask how to add tags; nothing where the person cancels.
 * @param {Context} context
 * @param {Prefill} prefill
 * @returns {Promise<Addition | undefined>}
 */
export function askAddition(context, { by = "sets", name = "" }) {
  const makers = { sets: setsForm, items: itemsForm, name: nameForm };
  const ways = [
    ["sets", "By tag sets"],
    ["items", "By items"],
    ["name", "By name"],
  ];
  const offered = context.model.collection ? ways : ways.filter(([way]) => way !== "items");
  return dialog("Add tags", (close) => {
    const pane = h("div.stack");
    const show = (/** @type {Way} */ way) => clear(pane, makers[way](context, close, name));
    show(by);
    return h("div.stack.wide", segments("How", "way", offered, by, show), pane);
  });
}

/**
 * Add a label by items that carry it: these are answers, so to undo takes the answers back.
 * @param {Context} context
 * @param {string} label
 * @param {string[]} items
 */
export function additionByItems({ api }, label, items) {
  const revert = async () => {
    const params = { label, limit: MAX_VERDICTS };
    /** @type {{verdicts: Verdict[]}} */
    const { verdicts } = await api.get(api.model("verdicts"), { params });
    const standing = verdicts.filter(
      ({ undone, answer, item }) => !undone && answer && items.includes(item),
    );
    const numbers = standing.map((verdict) => verdict.number);
    if (numbers.length) await api.post(api.model("undo"), { numbers });
  };
  return { run: () => api.post(api.model("labels"), { label, items }), revert };
}

/** @param {string} text */
const splitAtCommas = (text) =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);

/* ------------------------------------------------------------------ by tag sets */

/**
 * @param {Context} context
 * @param {Close} close
 * @param {string} name
 */
function setsForm(context, close, name) {
  return new SetsForm(context, close, name).element;
}

class SetsForm {
  /**
   * @param {Context} context
   * @param {Close} close
   * @param {string} name that the first tag set begins with
   */
  constructor({ api }, close, name) {
    this.api = api;
    this.close = close;
    /** Whether a spelling is a label, as far as it was looked up. @type {Map<string, boolean>} */
    this.isKnown = new Map();
    /** @type {string[]} */
    this.newTags = [];
    this.turn = 0; // of looking tags up; an answer to an earlier request is dropped
    this.lookSoon = debounce(() => this.look(), 250);
    this.preview = h("div.stack.tight", { role: "status" });
    this.submit = submitButton("Add", true);
    this.input = h("textarea", {
      rows: 4,
      placeholder: "parasol, sand, sea\nparasol, sun, towel",
      aria_label: "Tag sets, one a line, with commas between the tags",
      value: name ? `${name}, ` : "",
      oninput: () => this.lookSoon(),
    });
    this.element = form(
      () => this.send(),
      field("Tag sets that show how the tag is used, one a line", this.input),
      this.preview,
      dialogEnd(close, this.submit),
    );
    this.lookSoon();
  }

  /** @returns {string[][]} */
  get tagSets() {
    /** @type {string[]} */
    const lines = this.input.value.split("\n");
    return lines.map(splitAtCommas).filter((tags) => tags.length);
  }

  /** Find out which tags are known, and show it. */
  async look() {
    this.turn += 1;
    const { turn, tagSets } = this;
    this.submit.disabled = true;
    if (!tagSets.length) {
      clear(this.preview);
      return;
    }
    try {
      await this.lookUp([...new Set(tagSets.flat().map(spellingOf))]);
      if (turn === this.turn) this.showPreview(tagSets);
    } catch (error) {
      if (turn === this.turn)
        clear(this.preview,
          failed(error, () => this.look()),
        );
    }
  }

  /** @param {string[]} spellings */
  async lookUp(spellings) {
    const unchecked = spellings.filter((spelling) => !this.isKnown.has(spelling));
    for (let start = 0; start < unchecked.length; start += PARALLEL) {
      const batch = unchecked.slice(start, start + PARALLEL);
      await Promise.all(batch.map((spelling) => this.check(spelling)));
    }
  }

  /** Ask whether a spelling is a label. @param {string} spelling */
  async check(spelling) {
    // In the order of names a label stands before all that begin with it.
    const params = { query: spelling, order: "name", limit: 1 };
    const { labels } = await this.api.get(this.api.model("labels"), { params });
    this.isKnown.set(spelling, labels.length > 0 && spellingOf(labels[0].label) === spelling);
  }

  /** @param {string} tag */
  isNew(tag) {
    return !this.isKnown.get(spellingOf(tag));
  }

  /**
   * Show which tags are new; a set of new tags alone cannot be added.
   * @param {string[][]} tagSets
   */
  showPreview(tagSets) {
    const newTags = tagSets.flat().filter((tag) => this.isNew(tag));
    const tagBySpelling = new Map(newTags.map((tag) => [spellingOf(tag), tag]));
    const unknownSet = tagSets.find((tags) => tags.every((tag) => this.isNew(tag)));
    this.newTags = [...tagBySpelling.values()];
    this.submit.disabled = Boolean(unknownSet);
    this.submit.textContent = `Add ${plural(tagSets.length, "tag set")}`;
    clear(this.preview,
      tagSets.map((tags) =>
        h("div.chips",
          tags.map((tag) => previewChip(tag, this.isNew(tag))),
        ),
      ),
      h("p.small.muted", this.newSentence()),
      unknownSet && h("p.small.against", unknownSentence(unknownSet)),
    );
  }

  newSentence() {
    if (this.newTags.length) return `New: ${this.newTags.join(", ")}.`;
    return "All these tags are known; the tag sets are added all the same.";
  }

  send() {
    if (this.submit.disabled) return;
    const { api, newTags, tagSets } = this;
    const run = () => api.post(api.model("labels"), { documents: tagSets });
    this.close({ labels: newTags, nSets: tagSets.length, run });
  }
}

/**
 * @param {string} tag
 * @param {boolean} isNew
 */
function previewChip(tag, isNew) {
  if (isNew) return h("span.chip.chip-new", icon("plus"), tag, h("span.sr", " (new)"));
  return h("span.chip", tag, h("span.sr", " (known)"));
}

/** @param {string[]} tags */
function unknownSentence(tags) {
  return `“${tags.join(", ")}” holds no known tag. The model knows a new tag by its company, so put a known one beside it.`;
}

/* ------------------------------------------------------------------ by items */

/**
 * @param {Context} context
 * @param {Close} close
 * @param {string} name
 */
function itemsForm(context, close, name) {
  return new ItemsForm(context, close, name).element;
}

class ItemsForm {
  /**
   * @param {Context} context
   * @param {Close} close
   * @param {string} name
   */
  constructor(context, close, name) {
    this.context = context;
    this.close = close;
    /** @type {Set<string>} */
    this.chosen = new Set();
    this.control = new AbortController();
    this.input = h("input", {
      value: name,
      maxlength: MAX_LENGTH,
      autocomplete: "off",
      aria_label: "New tag",
      oninput: () => this.drawStatus(),
    });
    this.search = h("input", {
      type: "search",
      placeholder: "Search items",
      aria_label: "Search items",
      autocomplete: "off",
      oninput: debounce(() => this.read(), 150),
    });
    this.grid = h("div.board.board-pick", loading());
    this.status = h("p.small.muted", { role: "status" });
    this.submit = submitButton("Add");
    this.element = form(
      () => this.send(),
      field("New tag", this.input),
      this.search,
      this.grid,
      this.status,
      dialogEnd(close, this.submit),
    );
    this.read();
    this.drawStatus();
  }

  get label() {
    return this.input.value.trim();
  }

  drawStatus() {
    const n = this.chosen.size;
    this.submit.disabled = !this.label || !n;
    this.status.textContent = n
      ? `${plural(n, "item")} chosen.`
      : "Choose items that should carry the tag.";
  }

  /** Show the items that match what is typed. */
  async read() {
    const { api } = this.context;
    this.control.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    const params = { query: this.search.value.trim(), limit: ITEMS };
    try {
      /** @type {{items: Item[]}} */
      const { items } = await api.get(api.model("items"), { params, signal });
      const tiles = items.map((item) => this.makeTile(item));
      clear(this.grid, tiles.length ? tiles : h("p.muted", "No item matches."));
    } catch (error) {
      if (!isAbort(error))
        clear(this.grid,
          failed(error, () => this.read()),
        );
    }
  }

  /** An item that can be chosen, or not any more, by a click. @param {Item} item */
  makeTile(item) {
    const { id } = item;
    const toggle = () => {
      const wasChosen = this.chosen.delete(id);
      if (!wasChosen) this.chosen.add(id);
      tile.setAttribute("aria-pressed", String(!wasChosen));
      this.drawStatus();
    };
    const tile = h("button.tile-face",
      {
        aria_pressed: String(this.chosen.has(id)),
        aria_label: id,
        title: id,
        onclick: toggle,
      },
      picture(this.context, id, 256, item),
    );
    return tile;
  }

  send() {
    if (this.submit.disabled) return;
    const { label } = this;
    const addition = additionByItems(this.context, label, [...this.chosen]);
    this.close({ labels: [label], nSets: 0, ...addition });
  }
}

/* ------------------------------------------------------------------ by name */

/**
 * The form that adds tags by their names, where the model or word vectors can read these.
 * @param {Context} context
 * @param {Close} close
 * @param {string} name
 */
function nameForm({ api, model }, close, name) {
  if (!model.takes_names) {
    return h("p.muted",
      "With word vectors, the model can place a tag by its name alone. The service has none: it was started without. Add the tag by tag sets or items instead.",
    );
  }
  const input = h("input", {
    value: name,
    required: true,
    autocomplete: "off",
    placeholder: "seaside, promenade",
    aria_label: "Names, with commas between",
  });
  const send = () => {
    const labels = splitAtCommas(input.value);
    const run = () => api.post(api.model("labels"), { labels });
    if (labels.length) close({ labels, nSets: 0, run });
  };
  return form(
    send,
    h("p", "The name alone tells what the tag means. Tag sets and items tell more."),
    field("Names, with commas between", input),
    dialogEnd(close, submitButton("Add")),
  );
}
