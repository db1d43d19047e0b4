// @ts-check
/**
 * Where a picture, a sound, a text or a row of numbers comes in: drop, choose, paste, type.
 *
 * In: files and text. Out: `take({file})`, `take({file, typed})`, `take({features})`, or `take({})`
 * when it is removed.
 */

import { clear, h } from "./dom.js";
import { mediaWords, textPage } from "./items.js";
import { icon, iconButton, plural } from "./parts.js";

/**
 * What is given: a file, which may be a text that was typed, a row of numbers, or an item.
 * @typedef {{file?: File, typed?: string, features?: number[], item?: string}} Content
 */
/**
 * @typedef {object} Options
 * @property {any} model
 * @property {HTMLElement} area what files can be dropped on
 * @property {(content: Content) => void} take
 * @property {(text: string) => void} complain
 */

const TYPED_NAME = "Typed text"; // of the file that a typed text is sent as
const MAX_SHOWN = 20_000; // letters of a file of text
/** Kinds of media of which an item is no single row of numbers. */
const WITHOUT_ROWS = ["audio", "text"];
const ICONS = /** @type {Record<string, string>} */ ({ audio: "sound", text: "text" });

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
    this.takesRows = !WITHOUT_ROWS.includes(this.media);
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
    this.typed = h("textarea.typed", {
      aria_label: "Text",
      rows: "6",
      placeholder: "Paste or type a text",
      dir: "auto",
      oninput: () => this.readTyped(),
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
    const { type } = file; // empty where the browser does not know it
    const { one, types } = this.words;
    if (!this.media) return this.complain("This model takes numbers, not files.");
    if (type && !types.some((start) => type.startsWith(start))) {
      return this.complain(`This model takes ${one}; this is ${type}.`);
    }
    this.text.value = "";
    this.typed.value = "";
    this.note.textContent = "";
    this.take({ file });
    this.show({ file });
  }

  /** Take what is typed, as a file; white space alone is nothing. */
  readTyped() {
    const typed = this.typed.value;
    if (!typed.trim()) return this.take({});
    this.take({ file: new File([typed], TYPED_NAME, { type: "text/plain" }), typed });
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
    this.typed.value = "";
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
   * Take a pasted file, or a text or a row of numbers that is pasted outside of a box.
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
    const text = event.clipboardData?.getData("text") || "";
    if (this.media === "text") return this.pasteText(text);
    if (!this.takesRows) return;
    const row = numbersOf(text);
    if (!row || row.length < 2) return; // a single number may be meant for something else
    this.text.value = row.join(" ");
    this.numbers.open = true;
    this.readNumbers();
  }

  /** Put a text into its box, in place of what was given. @param {string} text */
  pasteText(text) {
    if (!text.trim()) return;
    this.show({});
    this.typed.value = text;
    this.typed.focus();
    this.readTyped();
  }

  /* ---- what is shown ---- */

  /** @param {Content} content */
  show({ file, typed, features, item }) {
    if (this.preview) URL.revokeObjectURL(this.preview);
    this.preview = file ? URL.createObjectURL(file) : "";
    if (features) this.text.value = features.join(" ");
    if (typed) this.typed.value = typed;
    if (file && !typed) clear(this.element, this.fileFigure(file), this.file);
    else if (item) clear(this.element, this.itemFigure(item), this.file);
    else
      clear(this.element,
        this.media === "text" && this.typed,
        this.media && this.dropButton(),
        this.takesRows && this.numbers,
        this.file,
      );
    this.numbers.open = Boolean(features) || (!this.media && !item);
  }

  /** @param {File} file */
  fileFigure(file) {
    const { name } = file;
    return h("figure.given", this.fileMedium(file), this.caption(name, `Take ${name} away`));
  }

  /** @param {File} file */
  fileMedium(file) {
    if (this.media === "audio") return h("audio", { controls: true, src: this.preview });
    if (this.media === "text") return isPlain(file) && fileText(file);
    return h("img", { src: this.preview, alt: `The picture ${file.name}` });
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
    const isText = this.media === "text";
    return h("button.drop", { onclick: () => this.file.click() },
      icon(ICONS[this.media] ?? "image"),
      h("span",
        h("strong", `Choose ${isText ? "a file" : this.words.one}`),
        h("span.muted", isText ? "or drop one here" : "or drop or paste one here"),
      ),
    );
  }

  /** Show the medium of the item that stands there already. @param {HTMLElement} medium */
  showMedium(medium) {
    this.element.querySelector(".given")?.prepend(medium);
  }
}

/** Whether a file is text that can be shown as it is. @param {File} file */
function isPlain({ name, type }) {
  return !/html|pdf/.test(type) && !/\.(x?html?|pdf)$/i.test(name);
}

/** The beginning of a file of text. @param {File} file */
function fileText(file) {
  const page = textPage("", file.name);
  file.slice(0, MAX_SHOWN).text().then((text) => page.append(text));
  return page;
}
