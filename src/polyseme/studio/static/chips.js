// @ts-check
/**
 * A box for several tags: each is a chip that can be taken away again.
 *
 * In: typing, with completion; pasted lists. Out: `change(tags)` after each change.
 */

import { clear, h } from "./dom.js";
import { icon } from "./parts.js";
import { labelBox } from "./labelbox.js";

const SEPARATORS = /[,;\n]/;

export class ChipBox {
  /**
   * @param {object} options
   * @param {import("./api.js").Api} options.api
   * @param {string[]} options.tags
   * @param {(tags: string[]) => void} options.change
   */
  constructor({ api, tags, change }) {
    this.tags = [...tags];
    this.change = change;
    /** Tags that no known tag set holds. @type {Set<string>} */
    this.unknown = new Set();
    this.list = h("ul.chipbox-list", { aria_label: "Tags given" });
    this.box = labelBox({
      api,
      name: "Add a tag",
      placeholder: "Type a tag",
      allowNew: true,
      search: true,
      choose: (label) => this.add([label]),
      backspace: () => this.removeLast(),
    });
    const { input } = this.box;
    this.element = h("div.chipbox",
      { onclick: (/** @type {Event} */ event) => event.target === this.element && input.focus() },
      this.list,
      this.box.element,
    );
    input.addEventListener("paste", (event) => this.paste(event));
    input.addEventListener("keydown", (event) => this.handleKey(event));
    this.draw();
  }

  /**
   * Take these tags instead.
   * @param {string[]} tags
   * @param {boolean} [isQuiet] whether nobody is told
   */
  set(tags, isQuiet = false) {
    this.tags = [...tags];
    this.draw();
    if (!isQuiet) this.change(this.tags);
  }

  /** Add tags that are not there yet. @param {string[]} tags as they were typed */
  add(tags) {
    const present = new Set(this.tags.map((tag) => tag.toLowerCase()));
    const newTags = tags
      .map((tag) => tag.trim().replace(/\s+/g, " "))
      .filter((tag) => tag && !present.has(tag.toLowerCase()));
    if (newTags.length) this.set([...this.tags, ...new Set(newTags)]);
  }

  /** @param {string} tag */
  remove(tag) {
    this.set(this.tags.filter((other) => other !== tag));
    this.box.input.focus();
  }

  removeLast() {
    if (this.tags.length) this.set(this.tags.slice(0, -1));
  }

  /** Mark tags that no known tag set holds. @param {string[]} tags */
  mark(tags) {
    this.unknown = new Set(tags);
    this.draw();
  }

  draw() {
    const chips = this.tags.map((tag) => this.makeChip(tag));
    clear(this.list, chips);
    this.list.hidden = !chips.length;
  }

  /** @param {string} tag */
  makeChip(tag) {
    const props = this.unknown.has(tag)
      ? { class: "chip-unknown", title: "In no known tag set" }
      : {};
    const remove = { aria_label: `Take ${tag} away`, onclick: () => this.remove(tag) };
    return h("li.chip", props, tag, h("button.chip-x", remove, icon("close")));
  }

  /** A pasted list becomes several tags. @param {ClipboardEvent} event */
  paste(event) {
    const text = event.clipboardData?.getData("text") || "";
    if (!SEPARATORS.test(text)) return;
    event.preventDefault();
    this.add(text.split(SEPARATORS));
  }

  /** A comma ends a tag. @param {KeyboardEvent} event */
  handleKey(event) {
    const { box } = this;
    if (event.key !== "," || !box.typed) return;
    event.preventDefault();
    this.add([box.typed]);
    box.input.value = "";
    box.close();
  }
}
