// @ts-check
/**
 * Where a picture, a sound or a row of numbers comes in: drop, choose, paste.
 *
 * In: files and text. Out: `take({file})`, `take({features})` or `take({})` when it is removed.
 */

import { clear, h } from "./dom.js";
import { mediaWords } from "./items.js";
import { icon, iconButton, plural } from "./parts.js";

/**
 * What is given, of which at most one is there.
 * @typedef {{file?: File, features?: number[], item?: string}} Content
 */
/**
 * @typedef {object} Options
 * @property {any} model
 * @property {HTMLElement} area what files can be dropped on
 * @property {(content: Content) => void} take
 * @property {(text: string) => void} complain
 */

/** Return the numbers of a text, or null if something in it is no number. @param {string} text */
function numbersOf(text) {
  const parts = text
    .replace(/[[\]()]/g, " ")
    .split(/[\s,;]+/)
    .filter(Boolean);
  const numbers = parts.map(Number);
  return parts.length && numbers.every(Number.isFinite) ? numbers : null;
}

export class Intake {
  /** @param {Options} options */
  constructor({ model, area, take, complain }) {
    this.area = area;
    this.take = take;
    this.complain = complain;
    this.media = model.media;
    this.nFeatures = model.n_features;
    this.words = mediaWords(this.media);
    this.preview = ""; // address of the file that is shown
    this.onPaste = (/** @type {ClipboardEvent} */ event) => this.paste(event);
    this.element = h("div.intake");
    this.file = h("input.sr", {
      type: "file",
      tabindex: "-1",
      aria_hidden: "true",
      accept: this.words.accept,
      onchange: () => this.accept(this.file.files[0]),
    });
    this.text = h("textarea", {
      aria_label: "Row of numbers",
      rows: "3",
      placeholder: `${this.nFeatures} numbers, with spaces or commas between`,
      spellcheck: "false",
      oninput: () => this.readNumbers(),
    });
    this.note = h("p.muted.small", { role: "status" });
    this.numbers = h("details.numbers",
      h("summary", "A row of numbers instead"),
      this.text,
      this.note,
    );
    this.listen();
  }

  listen() {
    const { area } = this;
    area.addEventListener("dragover", (event) => this.dragOver(event));
    area.addEventListener("dragleave", () => area.classList.remove("dropping"));
    area.addEventListener("drop", (event) => this.drop(event));
    window.addEventListener("paste", this.onPaste);
  }

  dispose() {
    window.removeEventListener("paste", this.onPaste);
    if (this.preview) URL.revokeObjectURL(this.preview);
  }

  /* ---- what comes in ---- */

  /** Take a file, or say why it cannot be used. @param {File | undefined} file */
  accept(file) {
    if (!file) return;
    const [kind] = file.type.split("/"); // empty where the browser does not know it
    if (!this.media) return this.complain("This model takes numbers, not files.");
    if (kind && kind !== this.media) {
      return this.complain(`This model takes ${this.words.one}; this is ${file.type}.`);
    }
    this.text.value = "";
    this.note.textContent = "";
    this.take({ file });
    this.show({ file });
  }

  readNumbers() {
    const isEmpty = !this.text.value.trim();
    const row = numbersOf(this.text.value);
    this.note.textContent = isEmpty ? "" : this.rowSentence(row);
    if (isEmpty) this.take({});
    else if (row && row.length === this.nFeatures) this.take({ features: row });
  }

  /** @param {number[] | null} row */
  rowSentence(row) {
    if (!row) return "Something in there is no number.";
    const numbers = plural(row.length, "number");
    if (row.length === this.nFeatures) return `${numbers}, as the model takes.`;
    return `${numbers} of ${this.nFeatures}.`;
  }

  remove() {
    this.file.value = "";
    this.show({});
    this.take({});
  }

  /** @param {DragEvent} event */
  dragOver(event) {
    const types = event.dataTransfer?.types || [];
    if (!types.includes("Files")) return;
    event.preventDefault();
    this.area.classList.add("dropping");
  }

  /** @param {DragEvent} event */
  drop(event) {
    const file = event.dataTransfer?.files[0];
    this.area.classList.remove("dropping");
    if (!file) return;
    event.preventDefault();
    this.accept(file);
  }

  /**
   * Take a pasted file, or a row of numbers that is pasted outside of a box.
   * @param {ClipboardEvent} event
   */
  paste(event) {
    const file = event.clipboardData?.files[0];
    if (file) {
      event.preventDefault();
      this.accept(file);
      return;
    }
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.defaultPrevented || target.closest("input, textarea")) return;
    const row = numbersOf(event.clipboardData?.getData("text") || "");
    if (!row || row.length < 2) return; // a single number may be meant for something else
    this.text.value = row.join(" ");
    this.numbers.open = true;
    this.readNumbers();
  }

  /* ---- what is shown ---- */

  /** @param {Content} content */
  show({ file, features, item }) {
    if (this.preview) URL.revokeObjectURL(this.preview);
    this.preview = file ? URL.createObjectURL(file) : "";
    if (features) this.text.value = features.join(" ");
    if (file) clear(this.element, this.fileFigure(file), this.file);
    else if (item) clear(this.element, this.itemFigure(item), this.file);
    else clear(this.element, this.media && this.dropButton(), this.numbers, this.file);
    this.numbers.open = Boolean(features) || (!this.media && !item);
  }

  /** @param {File} file */
  fileFigure({ name }) {
    const isAudio = this.media === "audio";
    const medium = isAudio
      ? h("audio", { controls: true, src: this.preview })
      : h("img", { src: this.preview, alt: `The picture ${name}` });
    return h("figure.given", medium, this.caption(name, `Take ${name} away`));
  }

  /** @param {string} item */
  itemFigure(item) {
    return h("figure.given", this.caption(`Item ${item}`, "Take the item away"));
  }

  /**
   * @param {string} text
   * @param {string} removeText
   */
  caption(text, removeText) {
    const button = iconButton("close", removeText, { onclick: () => this.remove() });
    return h("figcaption", h("span", text), button);
  }

  dropButton() {
    return h("button.drop", { onclick: () => this.file.click() },
      icon(this.media === "audio" ? "sound" : "image"),
      h("span",
        h("strong", `Choose ${this.words.one}`),
        h("span.muted", "or drop or paste one here"),
      ),
    );
  }

  /**
   * Show the medium of the item that stands there already.
   * @param {string} url
   * @param {string} kind of media: "image" or "audio"
   */
  showMedium(url, kind) {
    const medium =
      kind === "audio"
        ? h("audio", { controls: true, src: url })
        : h("img", { src: url, alt: "The item" });
    this.element.querySelector(".given")?.prepend(medium);
  }
}
