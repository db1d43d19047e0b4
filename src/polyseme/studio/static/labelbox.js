// @ts-check
/**
 * A box to find a label by typing: a combobox with completion from the service.
 *
 * In: what is typed. Out: `choose(label, card)`, once for each choice; the card is null for a word
 * that is no label, which is offered only where `allowNew` says so.
 */

import { clear, debounce, h, uid } from "./dom.js";
import { isAbort } from "./api.js";
import { count, icon, kindBadge } from "./parts.js";

/** @typedef {import("./api.js").Label} Label */
/**
 * What the list offers; a new one has no card.
 * @typedef {{label: string, card: Label | null}} Choice
 */
/**
 * @typedef {object} Options
 * @property {import("./api.js").Api} api
 * @property {string} name accessible name of the box
 * @property {(label: string, card: Label | null) => void} choose
 * @property {string} [placeholder]
 * @property {boolean} [allowNew]
 * @property {boolean} [keep] leave the chosen label standing in the box
 * @property {boolean} [search] the key "/" goes here
 * @property {() => void} [backspace] Backspace in the empty box
 */

const MAX_CHOICES = 12;

/** @param {Options} options */
export function labelBox(options) {
  return new LabelBox(options);
}

/** The box with a magnifying glass before it. @param {Options} options */
export function searchBox(options) {
  const box = new LabelBox({ keep: true, search: true, ...options });
  box.element.classList.add("combo-search");
  box.element.prepend(icon("search"));
  return box;
}

class LabelBox {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    const { name, placeholder = "", search = false } = options;
    this.id = uid("labels");
    /** @type {Choice[]} */
    this.choices = [];
    this.active = -1; // index of the choice that Enter takes
    this.chosen = "";
    this.isStale = false; // the list is of something that was typed before
    this.isEager = false; // Enter was pressed meanwhile: take the first choice that comes
    this.control = new AbortController();
    this.askSoon = debounce(() => this.ask(), 110);
    /** @type {HTMLInputElement} */
    this.input = h("input", {
      type: "text",
      role: "combobox",
      aria_label: name,
      aria_autocomplete: "list",
      aria_expanded: "false",
      aria_controls: this.id,
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      enterkeyhint: "search",
      placeholder,
      data_search: search ? "" : null,
      oninput: () => this.handleInput(),
      onfocus: () => options.keep && this.input.select(),
      onclick: () => this.list.hidden && this.askSoon(),
      onblur: () => this.close(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.handleKey(event),
    });
    /** @type {HTMLElement} */
    this.list = h("ul.combo-list", {
      role: "listbox",
      id: this.id,
      aria_label: `${name}: labels`,
      hidden: true,
    });
    /** @type {HTMLElement} */
    this.element = h("div.combo", this.input, this.list);
  }

  get typed() {
    return this.input.value.trim();
  }

  /** Put a label in the box, as if it had been chosen. @param {string} label */
  set(label) {
    this.chosen = label;
    this.input.value = label;
  }

  /** Close the list, and forget what it offered. */
  close() {
    this.askSoon.cancel();
    this.control.abort();
    this.choices = [];
    this.active = -1;
    this.isStale = false;
    this.isEager = false;
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  /** @param {Choice} choice */
  take({ label, card }) {
    this.close();
    this.chosen = label;
    this.input.value = this.options.keep ? label : "";
    this.options.choose(label, card);
  }

  /** Ask the service for labels that match what is typed. */
  async ask() {
    const { api, keep } = this.options;
    const isChosen = keep && this.input.value === this.chosen;
    const query = isChosen ? "" : this.typed;
    this.control.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    const params = { query, limit: MAX_CHOICES, order: "count" };
    try {
      const { labels } = await api.get(api.model("labels"), { params, signal });
      const hasFocus = document.activeElement === this.input;
      if (!signal.aborted && hasFocus) this.show(labels, query);
    } catch (error) {
      if (!isAbort(error)) this.close();
    }
  }

  /**
   * Show labels that match what was typed, and the word itself where it may be new.
   * @param {Label[]} labels
   * @param {string} query
   */
  show(labels, query) {
    const isLabel = labels.some(({ label }) => label.toLowerCase() === query.toLowerCase());
    this.choices = labels.map((card) => ({ label: card.label, card }));
    if (this.options.allowNew && query && !isLabel) this.choices.push({ label: query, card: null });
    const rows = this.choices.map((choice, i) => this.makeRow(choice, i));
    clear(this.list, rows.length ? rows : noChoice());
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.setActive(rows.length && query ? 0 : -1);
    this.isStale = false;
    if (this.isEager && this.active >= 0) this.take(this.choices[this.active]);
    this.isEager = false;
  }

  /**
   * A choice of the list; a click takes it without the box losing the focus.
   * @param {Choice} choice
   * @param {number} index
   */
  makeRow(choice, index) {
    const { label, card } = choice;
    const keepFocus = (/** @type {Event} */ event) => event.preventDefault();
    return h("li",
      {
        role: "option",
        id: `${this.id}-${index}`,
        aria_selected: "false",
        onmousedown: keepFocus,
        onclick: () => this.take(choice),
      },
      h("span", label),
      card && card.kind !== "seen" && kindBadge(card.kind),
      h("span.muted", card ? count(card.count) : "not known yet"),
    );
  }

  /** Mark the choice that Enter takes. @param {number} index -1 for none */
  setActive(index) {
    const rows = [...this.list.children];
    this.active = index;
    rows.forEach((row, i) => row.setAttribute("aria-selected", String(i === index)));
    if (index < 0) {
      this.input.removeAttribute("aria-activedescendant");
    } else {
      this.input.setAttribute("aria-activedescendant", `${this.id}-${index}`);
      rows[index].scrollIntoView({ block: "nearest" });
    }
  }

  handleInput() {
    this.isStale = true;
    this.isEager = false;
    this.askSoon();
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const run = this.actionOf(event.key);
    if (!run) return;
    run();
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * What a key does, if anything.
   * @param {string} key
   * @returns {(() => void) | undefined}
   */
  actionOf(key) {
    const n = this.choices.length;
    const { backspace } = this.options;
    if (key === "ArrowDown" && this.list.hidden) return () => this.askSoon();
    if (key === "ArrowDown" && n) return () => this.setActive((this.active + 1) % n);
    if (key === "ArrowUp" && n) return () => this.setActive((this.active - 1 + n) % n);
    if (key === "Enter") return this.actionOfEnter();
    if (key === "Escape" && !this.list.hidden) return () => this.close();
    if (key === "Backspace" && !this.input.value) return backspace;
  }

  /** @returns {(() => void) | undefined} */
  actionOfEnter() {
    const { typed } = this;
    if (this.active >= 0 && !this.isStale) return () => this.take(this.choices[this.active]);
    if (this.options.allowNew && typed) return () => this.take({ label: typed, card: null });
    if (this.isStale && typed) {
      return () => {
        this.isEager = true;
      };
    }
  }
}

function noChoice() {
  const props = { role: "option", aria_disabled: "true", aria_selected: "false" };
  return h("li.combo-none", props, h("span", "No label like this."));
}
