// @ts-check
/**
 * Review by item: choose the item, and know the list that it was chosen from.
 *
 * In: the items of the service. Out: links to items; `ItemList` goes on from item to item.
 */

import { add, clear, debounce, h } from "./dom.js";
import { isAbort } from "./api.js";
import { count, empty, failed, loading, plural, segments } from "./parts.js";
import { hashOf } from "./cards.js";
import { Names, breakable, picture } from "./items.js";

/** @typedef {import("./api.js").Item} Item */
/** @typedef {import("./app.js").Context} Context */

const PAGE = 48; // items at a time
const SEARCH_PAGE = 1000; // items at a time while one of them is looked for
const MOST_SEARCHED = 20_000; // items that are read to find the position of one

/**
 * Which items are listed.
 * @type {Record<string, {text: string, params: Record<string, boolean>}>}
 */
const FILTERS = {
  all: { text: "All", params: {} },
  untagged: { text: "Without tags", params: { tagged: false } },
  open: { text: "Without answers", params: { reviewed: false } },
  answered: { text: "With answers", params: { reviewed: true } },
};

/** Return the address of the page of an item. @param {string} id */
export const itemHash = (id) => hashOf("review/item", id);

/** The list that items are chosen from, as far as it was read; kept while the page is open. */
export class ItemList {
  /** @param {Context} context */
  constructor({ api }) {
    this.api = api;
    this.query = "";
    this.filter = "all";
    /** @type {string[]} */
    this.ids = [];
    /** @type {number | null} */
    this.total = null;
  }

  /** Return the list of the model in use. @param {Context} context @returns {ItemList} */
  static of(context) {
    return (context.state.reviewItems ??= new ItemList(context));
  }

  get hash() {
    return this.filter === "untagged" ? "#/review/untagged" : "#/review/item";
  }

  get name() {
    return this.filter === "all" ? "All items" : `Items ${FILTERS[this.filter].text.toLowerCase()}`;
  }

  get isComplete() {
    return this.total !== null && this.ids.length >= this.total;
  }

  /**
   * Read the next items.
   * @param {number} limit
   * @param {AbortSignal} signal
   * @returns {Promise<Item[]>}
   */
  async readNext(limit, signal) {
    const filter = FILTERS[this.filter].params;
    const params = { query: this.query, ...filter, offset: this.ids.length, limit };
    const page = await this.api.get(this.api.model("items"), { params, signal });
    /** @type {Item[]} */
    const items = page.items;
    this.total = page.total;
    this.ids.push(...items.map((item) => item.id));
    return items;
  }

  /**
   * Return the position of an item, reading on until it is met; -1 where it is not.
   * @param {string} id
   * @param {AbortSignal} signal
   */
  async locate(id, signal) {
    while (!this.ids.includes(id) && !this.isComplete && this.ids.length < MOST_SEARCHED) {
      const items = await this.readNext(SEARCH_PAGE, signal);
      if (!items.length) break;
    }
    const index = this.ids.indexOf(id);
    const isLast = index === this.ids.length - 1;
    if (isLast && !this.isComplete) await this.readNext(PAGE, signal);
    return index;
  }
}

/**
 * Show the items to choose from; returns what unmounts them.
 * @param {HTMLElement} stage
 * @param {Context} context
 * @param {string} [filter] that the address names
 */
export function chooseItem(stage, context, filter) {
  const chooser = new ItemChooser(stage, context, filter);
  chooser.load();
  return () => chooser.control.abort();
}

class ItemChooser {
  /**
   * @param {HTMLElement} stage
   * @param {Context} context
   * @param {string} [filter]
   */
  constructor(stage, context, filter) {
    this.context = context;
    this.list = ItemList.of(context);
    if (filter) this.list.filter = filter;
    this.control = new AbortController();
    this.names = new Names();
    /** @type {Map<string, HTMLElement>} */
    this.nameById = new Map();
    this.filters = h("div.item-filters");
    this.status = h("p.muted", { role: "status" });
    this.grid = h("div.board.board-small");
    this.foot = h("div.row.center");
    this.search = h("input", {
      type: "search",
      data_search: "",
      value: this.list.query,
      placeholder: "Search ids and tags",
      aria_label: "Search items",
      autocomplete: "off",
      oninput: debounce(() => this.setQuery(), 200),
    });
    this.drawFilters();
    this.updateCounts();
    add(stage, h("div.search-box", this.search), this.filters, this.status, this.grid, this.foot);
    context.shortcuts([{ keys: "/", does: "search items" }]);
  }

  setQuery() {
    this.list.query = this.search.value.trim();
    this.load();
  }

  /** Show the choices of which items are listed, with their numbers. */
  drawFilters() {
    const { n_items, n_untagged, n_reviewed } = this.context.model.collection;
    /** @type {Record<string, number>} */
    const counts = {
      all: n_items,
      untagged: n_untagged,
      open: n_items - n_reviewed,
      answered: n_reviewed,
    };
    const choices = Object.entries(FILTERS).map(([filter, { text }]) => [
      filter,
      `${text} (${count(counts[filter])})`,
    ]);
    const choose = (/** @type {string} */ filter) => this.setFilter(filter);
    clear(this.filters, segments("Which items", "filter", choices, this.list.filter, choose));
  }

  /** Answers may have come since; a filter that has the keyboard stays as it is. */
  async updateCounts() {
    try {
      await this.context.refreshModel();
    } catch {
      return; // the former counts stay
    }
    if (!this.filters.contains(document.activeElement)) this.drawFilters();
  }

  /** @param {string} filter */
  setFilter(filter) {
    this.list.filter = filter;
    history.replaceState(null, "", this.list.hash);
    this.load();
  }

  async load() {
    this.control.abort();
    this.control = new AbortController();
    this.list.ids = [];
    this.nameById.clear();
    clear(this.foot);
    clear(this.status);
    clear(this.grid, loading("Loading items…"));
    await this.showNext();
  }

  /** Read the next page of items and add them. */
  async showNext() {
    const isFirst = !this.list.ids.length;
    try {
      const items = await this.list.readNext(PAGE, this.control.signal);
      if (isFirst) clear(this.grid);
      this.append(items);
    } catch (error) {
      if (isAbort(error)) return;
      if (isFirst)
        clear(this.grid,
          failed(error, () => this.load()),
        );
      else
        clear(this.foot,
          failed(error, () => this.showNext()),
        );
    }
  }

  /** Add tiles; names that several folders have get their folder. @param {Item[]} items */
  append(items) {
    const total = this.list.total ?? 0;
    const hasMore = items.length > 0 && !this.list.isComplete;
    this.status.textContent = plural(total, "item");
    this.names.add(items.map((item) => item.id));
    add(this.grid,
      items.map((item) => this.makeTile(item)),
    );
    for (const [id, name] of this.nameById) clear(name, breakable(this.names.of(id)));
    if (!total) clear(this.grid, empty("No item matches", "Try fewer letters, or all items."));
    clear(this.foot, hasMore && h("button", { onclick: () => this.showNext() }, "More items"));
  }

  /** @param {Item} item */
  makeTile(item) {
    const name = h("span.tile-name", { title: item.id });
    const nAnswers = item.verdicts.length;
    this.nameById.set(item.id, name);
    return h("a.tile", { href: itemHash(item.id) },
      h("div.tile-face", picture(this.context, item.id, 256, item)),
      h("div.tile-facts", name),
      nAnswers > 0 && h("span.muted.small", plural(nAnswers, "answer")),
    );
  }
}
