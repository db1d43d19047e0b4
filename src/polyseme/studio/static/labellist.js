// @ts-check
/**
 * The list of all labels, of which only the rows in sight are drawn.
 *
 * In: pages of labels of the service. Out: rows that lead to the labels.
 */

import { add, clear, debounce, h } from "./dom.js";
import { isAbort } from "./api.js";
import { count, empty, failed, kindBadge, percent, plural } from "./parts.js";
import { labelHash } from "./labelview.js";

/** @typedef {import("./api.js").Label} Label */

const PAGE = 100; // labels in one request
const ROW_HEIGHT = 48; // CSS pixels
const OVERSCAN = 8; // rows beyond those in sight
const MAX_ROWS = 200_000; // browsers draw nothing beyond some millions of pixels
const KINDS = [
  ["", "All kinds"],
  ["seen", "Seen"],
  ["unseen", "Unseen"],
  ["oov", "Oov"],
  ["blocked", "Blocked"],
  ["once", "Used once"],
];
const ORDERS = [
  ["count", "Most used first"],
  ["name", "By name"],
  ["quality", "Best ranked first"],
];

export class LabelList {
  /**
   * @param {HTMLElement} side
   * @param {import("./vocabulary.js").Vocabulary} vocabulary
   */
  constructor(side, vocabulary) {
    this.context = vocabulary.context;
    this.settings = vocabulary.settings;
    /** By number; null while a page is being read. @type {Map<number, Label[] | null>} */
    this.pages = new Map();
    /**
     * What is drawn, by its place in the list.
     * @type {Map<number, {element: HTMLElement, isLoaded: boolean}>}
     */
    this.rows = new Map();
    this.total = 0;
    this.control = new AbortController();
    this.search = h("input", {
      type: "search",
      data_search: "",
      value: this.settings.query,
      placeholder: "Search labels",
      aria_label: "Search labels",
      autocomplete: "off",
      oninput: debounce(() => this.set("query", this.search.value.trim()), 180),
    });
    this.status = h("p.muted.small", { role: "status" });
    this.space = h("div.vlist-space", { role: "list", aria_label: "Labels" });
    this.scroller = h("div.vlist",
      {
        onscroll: () => this.draw(),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.handleKey(event),
      },
      this.space,
    );
    this.note = h("div");
    this.compose(side);
    this.observer = new ResizeObserver(() => this.readOrDraw());
    this.observer.observe(this.scroller);
    this.restart();
  }

  leave() {
    this.control.abort();
    this.observer.disconnect();
  }

  /** Read the labels again, and stay at the same place. */
  reread() {
    this.forget();
    this.readOrDraw();
  }

  /** @param {HTMLElement} side */
  compose(side) {
    add(side,
      h("div.stack.tight",
        this.search,
        h("div.row",
          this.makeSelect("kind", "Kind", KINDS),
          this.makeSelect("order", "Order", ORDERS),
        ),
      ),
      h("div.row.vlist-head.small.muted",
        this.status,
        h("span.grow"),
        h("span.vcol", "tag sets"),
        h("span.vcol", { title: "C-MAP on held-out items" }, "C-MAP"),
      ),
      this.scroller,
      this.note,
    );
  }

  /**
   * @param {string} setting
   * @param {string} name
   * @param {string[][]} choices
   */
  makeSelect(setting, name, choices) {
    const options = choices.map(([value, text]) =>
      h("option", { value, selected: value === this.settings[setting] }, text),
    );
    const select = h("select",
      { aria_label: name, onchange: () => this.set(setting, select.value) },
      options,
    );
    return select;
  }

  /**
   * Change what is listed, and read it anew.
   * @param {string} setting "query", "kind" or "order"
   * @param {string} value
   */
  set(setting, value) {
    this.settings[setting] = value;
    this.restart();
  }

  /* ---- reading ---- */

  /** Drop all that was read and drawn. */
  forget() {
    this.control.abort();
    this.control = new AbortController();
    this.pages.clear();
    this.rows.clear();
    clear(this.space);
  }

  restart() {
    this.forget();
    this.scroller.scrollTop = 0;
    this.total = 0;
    this.readFirst();
  }

  readOrDraw() {
    if (this.total) this.draw();
    else this.readFirst();
  }

  readFirst() {
    this.readPage(0);
  }

  /** Read a page of labels, once. @param {number} number */
  async readPage(number) {
    if (this.pages.has(number)) return;
    this.pages.set(number, null);
    const { api } = this.context;
    const { query, kind, order } = this.settings;
    const filter = ["blocked", "once"].includes(kind) ? { [kind]: true } : { kind };
    const params = { query, ...filter, order, offset: number * PAGE, limit: PAGE };
    try {
      const page = await api.get(api.model("labels"), { params, signal: this.control.signal });
      this.pages.set(number, page.labels);
      this.setTotal(page.total);
      this.draw();
    } catch (error) {
      if (isAbort(error)) return;
      this.pages.delete(number);
      clear(this.note,
        failed(error, () => this.retry()),
      );
    }
  }

  retry() {
    clear(this.note);
    this.scroller.hidden = false;
    this.readFirst();
  }

  /** Give the list its length, or say that no label matches. @param {number} total */
  setTotal(total) {
    const { query, kind } = this.settings;
    const noMatch = empty("No label matches", "Try fewer letters, or all kinds.");
    const noLabels = query || kind ? noMatch : empty("No labels yet");
    const limit = total > MAX_ROWS ? `; search to see those beyond ${count(MAX_ROWS)}` : "";
    this.total = total;
    this.space.style.setProperty("height", `${Math.min(total, MAX_ROWS) * ROW_HEIGHT}px`);
    this.status.textContent = `${plural(total, "label")}${limit}`;
    this.scroller.hidden = total === 0;
    clear(this.note, total === 0 && noLabels);
  }

  /* ---- rows ---- */

  /** Draw the rows in sight, and a few beyond. */
  draw() {
    const { scrollTop, clientHeight } = this.scroller;
    const bottom = Math.ceil((scrollTop + clientHeight) / ROW_HEIGHT) + OVERSCAN;
    const start = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - OVERSCAN);
    const end = Math.min(this.total, MAX_ROWS, bottom);
    const lastPage = Math.floor(Math.max(start, end - 1) / PAGE);
    for (let page = Math.floor(start / PAGE); page <= lastPage; page += 1) this.readPage(page);
    this.dropRows(start, end);
    for (let index = start; index < end; index += 1) this.drawRow(index);
  }

  /**
   * Remove rows out of sight.
   * @param {number} start of those in sight
   * @param {number} end after the last of them
   */
  dropRows(start, end) {
    for (const [index, { element }] of this.rows) {
      if (index >= start && index < end) continue;
      element.remove();
      this.rows.delete(index);
    }
  }

  /** @param {number} index */
  drawRow(index) {
    const label = this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
    const former = this.rows.get(index);
    if (former && (former.isLoaded || !label)) return;
    const element = this.makeRow(index, label);
    if (former) former.element.replaceWith(element);
    else this.space.append(element);
    this.rows.set(index, { element, isLoaded: Boolean(label) });
  }

  /**
   * A row at its place; an empty one until its label is read.
   * @param {number} index
   * @param {Label} [label] as soon as it was read
   */
  makeRow(index, label) {
    return h("div.vrow",
      {
        role: "listitem",
        aria_setsize: this.total,
        aria_posinset: index + 1,
        style: { top: `${index * ROW_HEIGHT}px` },
      },
      label ? this.makeLink(index, label) : h("span.vghost", { aria_hidden: "true" }),
    );
  }

  /**
   * A label as a link to its page: name, kind, tag sets and quality.
   * @param {number} index
   * @param {Label} label
   */
  makeLink(index, label) {
    const { kind, blocked, quality, quality_unseen } = label;
    const href = labelHash(label.label);
    const isCurrent = href === labelHash(this.context.route.args.join("/"));
    return h("a", { href, aria_current: isCurrent ? "true" : null, dataset: { index } },
      h("span.vname", { class: blocked ? "struck" : "" }, label.label),
      blocked && h("span.kind.kind-blocked", "blocked"),
      kind !== "seen" && kindBadge(kind),
      h("span.vcol", count(label.count)),
      h("span.vcol", percent(kind === "seen" ? quality : quality_unseen)),
    );
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const { index } = /** @type {HTMLElement} */ (event.target).dataset;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (index === undefined || !step) return;
    const row = this.rows.get(Number(index) + step);
    row?.element.querySelector("a")?.focus();
    event.preventDefault();
  }
}
