// @ts-check
/**
 * Review by item: the suggested tags of one item and its own.
 *
 * In: an item of the service. Out: answers, put into the outbox, also about tags that were typed.
 */

import { add, clear, h } from "./dom.js";
import { isAbort } from "./api.js";
import {
  AnswerPage,
  answerButton,
  drawAnswer,
  nameOf,
  newEntry,
  updateProbability,
} from "./answers.js";
import { bar, count, failed, icon, kindBadge, loading } from "./parts.js";
import { labelBox } from "./labelbox.js";
import { hashOf } from "./cards.js";
import { ItemList, itemHash } from "./byitem.js";
import { medium, scrollsText } from "./items.js";

/** @typedef {import("./api.js").Item} Item */
/** @typedef {import("./api.js").Label} Label */
/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./answers.js").Entry} Entry */
/** @typedef {import("./answers.js").Outbox} Outbox */

const SUGGESTIONS = 12; // tags that are suggested for an item
const KEYS = [
  { keys: "↑ ↓", does: "move between tags" },
  { keys: "y", does: "yes" },
  { keys: "n", does: "no" },
  { keys: "u", does: "undo" },
  { keys: "← →", does: "previous, next item" },
  { keys: "/", does: "add a tag" },
];

/**
 * Show an item; returns what unmounts it.
 * @param {HTMLElement} stage
 * @param {Context} context
 * @param {Outbox} outbox
 * @param {string} id
 */
export function showItem(stage, context, outbox, id) {
  const review = new ItemReview(stage, context, outbox, id);
  review.load();
  review.locate();
  return () => review.unmount();
}

class ItemReview extends AnswerPage {
  /**
   * @param {HTMLElement} stage
   * @param {Context} context
   * @param {Outbox} outbox
   * @param {string} id
   */
  constructor(stage, context, outbox, id) {
    super(context, outbox, "input, textarea, select, audio, [contenteditable]");
    this.id = id;
    this.list = ItemList.of(context);
    /** By label. @type {Map<string, Entry>} */
    this.entries = new Map();
    /** By label, in the order of the page. @type {Map<string, Row>} */
    this.rows = new Map();
    /** Kinds of the labels: seen, unseen or oov. @type {Map<string, string>} */
    this.kinds = new Map();
    this.isLoaded = false;
    this.current = 0; // the row that the keys act on

    this.previous = pageLink("Previous", h("span", "Previous"));
    this.previous.prepend(icon("back"));
    this.next = pageLink("Next", h("span", "Next"));
    this.next.append(icon("next"));
    this.position = h("span.muted");
    this.body = h("div.item", loading("Loading the item…"));
    this.suggestions = h("ul.answer-rows", { aria_label: "Suggested tags" });
    this.ownTags = h("ul.answer-rows", { aria_label: "Own tags" });
    this.status = h("p.muted.small", { role: "status" });
    add(stage,
      h("div.row.item-nav",
        h("a.back", { href: this.list.hash }, icon("back"), this.list.name),
        h("div.grow"),
        this.position,
        this.previous,
        this.next,
      ),
      this.body,
    );
    this.listen(KEYS);
  }

  /* ---- the item ---- */

  /** Read the item with its tags, answers and suggestions. @returns {Promise<Item>} */
  read() {
    const { api } = this.context;
    const options = { params: { k: SUGGESTIONS }, signal: this.control.signal };
    return api.get(api.model("items", this.id), options);
  }

  async load() {
    try {
      this.show(await this.outbox.read(this.read()));
    } catch (error) {
      if (!isAbort(error))
        clear(this.body,
          failed(error, () => this.load()),
        );
    }
  }

  /** Show the item when it is read for the first time. @param {Item} item */
  show(item) {
    for (const { label, answer, number, who } of item.verdicts) {
      const by = nameOf(who, "");
      this.entryOf(label, { answer, saved: answer, number, by });
    }
    item.suggestions.forEach(({ label, kind, probability }, i) => {
      this.kinds.set(label, kind);
      Object.assign(this.entryOf(label), { probability, rank: i + 1 });
    });
    const tags = new Set(item.tags);
    const suggested = [...this.entries.keys()].filter((label) => !tags.has(label));
    for (const label of suggested) this.suggest(label);
    for (const label of item.tags) this.addRow(label, this.ownTags);
    this.isLoaded = true;
    this.compose(item);
    if (document.activeElement === document.body) {
      this.rowAt(0)?.element.focus({ preventScroll: true });
    }
  }

  /** Show the picture beside the tags. @param {Item} item */
  compose(item) {
    const why = h("a", { href: hashOf("ask/item", this.id) }, "Why these tags?");
    const hasSuggestions = this.suggestions.childElementCount > 0;
    clear(this.body,
      h("figure.item-media",
        medium(this.context, this.id, item),
        h("figcaption.small.break", this.id, " · ", why),
      ),
      h("div.item-tags",
        this.mayReview && this.tagBox(),
        this.status,
        h("div.row", h("h2.grow", "Suggested"), this.undoButton),
        !hasSuggestions && h("p.muted", "Nothing is suggested for this item."),
        this.suggestions,
        h("h2", "Own tags"),
        item.tags.length ? this.ownTags : h("p.muted", "This item has no tags of its own."),
      ),
    );
  }

  /** The box that takes further tags. */
  tagBox() {
    const box = labelBox({
      api: this.context.api,
      name: "Add a tag",
      placeholder: "Add a tag, known or new",
      allowNew: true,
      search: true,
      choose: (label, card) => this.addTag(label, card),
    });
    return box.element;
  }

  /** Read the probabilities again; tags that are suggested only now are added. */
  async refresh() {
    try {
      const { suggestions } = await this.read();
      suggestions.forEach(({ label, kind, probability }, i) => {
        updateProbability(this.entryOf(label), probability, i + 1);
        this.kinds.set(label, kind);
        this.suggest(label);
      });
    } catch {
      // The numbers stay as they were; the answers themselves are told of elsewhere.
    }
  }

  /** Show the position of the item in the list it was chosen from, and the items beside it. */
  async locate() {
    const { list } = this;
    try {
      const index = await list.locate(this.id, this.control.signal);
      if (index < 0) return;
      this.position.textContent = `${count(index + 1)} of ${count(list.total ?? 0)}`;
      linkTo(this.previous, list.ids[index - 1]);
      linkTo(this.next, list.ids[index + 1]);
    } catch {
      // Without the list there is no next; the item itself is shown all the same.
    }
  }

  /* ---- rows ---- */

  /**
   * Return the entry of a label; make it where there is none.
   * @param {string} label
   * @param {Partial<Entry>} [fields]
   * @returns {Entry}
   */
  entryOf(label, fields = {}) {
    const entry = this.entries.get(label) || newEntry(this.id, label, fields);
    this.entries.set(label, entry);
    return entry;
  }

  /**
   * Return the entry that an answer of others is about; its tag may be new on this page.
   * @param {string} item
   * @param {string} label
   */
  findEntry(item, label) {
    if (item !== this.id || !this.isLoaded) return undefined;
    this.suggest(label);
    return this.entries.get(label);
  }

  /**
   * Add the row of a tag.
   * @param {string} label
   * @param {HTMLElement} list of suggested or of own tags
   */
  addRow(label, list) {
    const row = new Row(this, this.entryOf(label));
    this.rows.set(label, row);
    list.append(row.element);
  }

  /** Show a suggested tag, or its new probability. @param {string} label */
  suggest(label) {
    const row = this.rows.get(label);
    if (row) row.draw();
    else this.addRow(label, this.suggestions);
  }

  /** @param {number} index */
  rowAt(index) {
    return [...this.rows.values()][index];
  }

  /** @param {number} index */
  focusRow(index) {
    this.current = Math.max(0, Math.min(this.rows.size - 1, index));
    this.rowAt(this.current)?.element.focus();
  }

  /* ---- answers ---- */

  /**
   * Accept a tag that was typed.
   * @param {string} label
   * @param {Label | null} card null where it is a new one
   */
  addTag(label, card) {
    if (card) this.kinds.set(label, card.kind);
    this.suggest(label);
    this.answer(this.entryOf(label), true);
    this.status.textContent = `“${label}”: yes.`;
  }

  /** @param {Entry} entry */
  drawEntry(entry) {
    this.rows.get(entry.label)?.draw();
  }

  drawEntries() {
    for (const row of this.rows.values()) row.draw();
  }

  /* ---- keys ---- */

  /**
   * What a key does, if anything.
   * @param {string} key
   * @param {HTMLElement} target
   * @returns {(() => void) | undefined}
   */
  actionOf(key, target) {
    const isOnRow = target.closest(".answer-row") !== null;
    const step = isOnRow ? 1 : 0; // from elsewhere the focus first returns to the current row
    if (scrollsText(key, target)) return undefined;
    if (key === "u") return () => this.undo();
    if (key === "y" || key === "n") return () => this.answerCurrent(key === "y", isOnRow);
    if (key === "ArrowDown" && this.rows.size) return () => this.focusRow(this.current + step);
    if (key === "ArrowUp" && this.rows.size) return () => this.focusRow(this.current - step);
    if (key === "ArrowLeft") return this.follow(this.previous);
    if (key === "ArrowRight") return this.follow(this.next);
  }

  /**
   * Answer for the current row; show first which one that is.
   * @param {boolean} verdict
   * @param {boolean} isOnRow
   */
  answerCurrent(verdict, isOnRow) {
    const row = this.rowAt(this.current);
    if (isOnRow && row) this.answer(row.entry, verdict);
    this.focusRow(isOnRow ? this.current + 1 : this.current);
  }

  /** Return what goes to a link's item; nothing where it has none. @param {HTMLElement} link */
  follow(link) {
    const hash = link.getAttribute("href");
    return hash ? () => this.context.navigate(hash) : undefined;
  }
}

/** A tag of an item: its probability, and what is answered. */
class Row {
  /**
   * @param {ItemReview} review
   * @param {Entry} entry
   */
  constructor(review, entry) {
    this.review = review;
    this.entry = entry;
    const { label } = entry;
    this.number = h("span.tile-number");
    this.byline = h("span.muted.small.answer-by");
    this.meter = h("span.answer-meter");
    this.yes = this.makeButton(true, `Yes: ${label}`);
    this.no = this.makeButton(false, `No: ${label}`);
    this.element = h("li.answer-row", { tabindex: "-1", onfocus: () => this.select() },
      h("span.answer-name",
        h("a.answer-label", { href: hashOf("review/label", label) }, label),
        this.badge(),
        this.byline,
      ),
      this.meter,
      this.number,
      h("span.answer-buttons", this.no, this.yes),
    );
    this.draw();
  }

  /** Most suggested tags are seen ones, so only the others have a badge. */
  badge() {
    const kind = this.review.kinds.get(this.entry.label);
    return kind && kind !== "seen" && kindBadge(kind);
  }

  /**
   * @param {boolean} verdict
   * @param {string} name
   */
  makeButton(verdict, name) {
    return answerButton(verdict, {
      disabled: !this.review.mayReview,
      aria_label: name,
      onclick: () => this.toggle(verdict),
    });
  }

  /** @param {boolean} verdict */
  toggle(verdict) {
    const { entry } = this;
    this.review.answer(entry, entry.answer === verdict ? null : verdict);
  }

  select() {
    this.review.current = [...this.review.rows.values()].indexOf(this);
  }

  draw() {
    const { entry } = this;
    drawAnswer(entry, this);
    clear(this.meter, entry.probability !== null && bar(entry.probability));
  }
}

/**
 * A link to another item, which may not be known yet.
 * @param {string} name
 * @param {HTMLElement} text
 */
function pageLink(name, text) {
  const props = { role: "link", aria_disabled: "true", aria_label: `${name} item` };
  return h("a.button", props, text);
}

/**
 * @param {HTMLElement} link
 * @param {string | undefined} id
 */
function linkTo(link, id) {
  if (!id) return;
  link.setAttribute("href", itemHash(id));
  link.removeAttribute("aria-disabled");
}
