// @ts-check
/**
 * Review by item: which item, and then its own tags and the suggested ones.
 *
 * In: the items of the service. Out: answers, put into the box, also about tags that were typed.
 */

import { add, clear, debounce, h } from "./dom.js";
import { isAbort } from "./api.js";
import { byWhom, drawAnswer, keyOf, isOwn, lastAct, newEntry } from "./answers.js";
import { bar, count, empty, failed, icon, kindBadge, loading, plural, segments } from "./parts.js";
import { labelBox } from "./labelbox.js";
import { to } from "./cards.js";
import { Names, medium, picture } from "./items.js";

/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./answers.js").Entry} Entry */
/** @typedef {import("./answers.js").Outbox} Outbox */

const MOST_LISTED = 20_000; // items that are read to find the place of one
/** Which items are listed. @type {Record<string, {text: string, asks: Record<string, boolean>}>} */
const FILTERS = {
  all: { text: "All", asks: {} },
  untagged: { text: "Without tags", asks: { tagged: false } },
  open: { text: "Without answers", asks: { reviewed: false } },
  answered: { text: "With answers", asks: { reviewed: true } },
};

/* ------------------------------------------------------------------ which item */

/**
 * @param {HTMLElement} stage
 * @param {Context} context
 * @param {string} [which] the filter that the address names
 */
export function chooseItem(stage, context, which) {
  const list = listOf(context);
  if (which) list.filter = which;
  const grid = h("div.board.board-small");
  const foot = h("div.row.center");
  const found = h("p.muted", { role: "status" });
  const names = new Names();
  /** @type {Map<string, any>} */
  const shown = new Map();
  let control = new AbortController();
  const search = h("input", {
    type: "search",
    data_search: "",
    value: list.query,
    placeholder: "Search ids and tags",
    aria_label: "Search items",
    autocomplete: "off",
    oninput: debounce(() => ((list.query = search.value.trim()), load()), 200),
  });
  const filters = h("div.item-filters");
  const drawFilters = () => {
    const { n_items: all, n_untagged: untagged, n_reviewed: answered } = context.model.collection;
    const n = /** @type {Record<string, number>} */ ({
      all,
      untagged,
      open: all - answered,
      answered,
    });
    const choices = Object.entries(FILTERS).map(([name, { text }]) => [
      name,
      `${text} (${count(n[name])})`,
    ]);
    clear(filters,
      segments("Which items", "filter", choices, list.filter, (name) => {
        list.filter = name;
        history.replaceState(null, "", listHash(list));
        load();
      }),
    );
  };
  drawFilters();
  // Answers may have come since; a filter that has the keyboard stays as it is.
  context.refreshModel().then(
    () => filters.contains(document.activeElement) || drawFilters(),
    () => {},
  );
  add(stage, h("div.search-box", search), filters, found, grid, foot);
  context.shortcuts([{ keys: "/", does: "search items" }]);

  async function load() {
    control.abort();
    control = new AbortController();
    list.ids = [];
    shown.clear();
    clear(foot);
    clear(found);
    clear(grid, loading("Loading items…"));
    await page();
  }

  async function page() {
    const mine = control;
    try {
      const first = !list.ids.length;
      const items = await readOn(context, 48, mine.signal);
      const { total } = list;
      if (first) clear(grid);
      found.textContent = plural(total, "item");
      names.add(items.map((/** @type {any} */ item) => item.id));
      for (const item of items) {
        const name = h("span.tile-name", { title: item.id });
        shown.set(item.id, name);
        add(grid,
          h("a.tile", { href: itemHash(item.id) },
            h("div.tile-face", picture(context, item.id, 256, item)),
            h("div.tile-facts",
              name,
              item.verdicts.length > 0 &&
                h("span.muted.small", plural(item.verdicts.length, "answer")),
            ),
          ),
        );
      }
      for (const [id, name] of shown) name.textContent = names.of(id);
      if (!total) clear(grid, empty("No item matches", "Try fewer letters, or all items."));
      clear(foot,
        list.ids.length < total && items.length > 0 && h("button", { onclick: page }, "More items"),
      );
    } catch (error) {
      if (!isAbort(error))
        clear(list.ids.length ? foot : grid, failed(error, list.ids.length ? page : load));
    }
  }
  load();
  return () => control.abort();
}

/** The list that items are chosen from, as far as it was read. @param {Context} context */
const listOf = ({ state }) =>
  (state.reviewItems = state.reviewItems || { query: "", filter: "all", ids: [], total: null });

/**
 * Read the next items of the list.
 * @param {Context} context
 * @param {number} limit
 * @param {AbortSignal} signal
 * @returns {Promise<any[]>}
 */
async function readOn(context, limit, signal) {
  const { api } = context;
  const list = listOf(context);
  const { total, items } = await api.get(api.model("items"), {
    params: { query: list.query, ...FILTERS[list.filter].asks, offset: list.ids.length, limit },
    signal,
  });
  list.total = total;
  list.ids.push(...items.map((/** @type {any} */ one) => one.id));
  return items;
}

/** Where the list is that items are chosen from. @param {{filter: string}} list */
const listHash = ({ filter }) => (filter === "untagged" ? "#/review/untagged" : "#/review/item");

/** What the list is called. @param {{filter: string}} list */
const listName = ({ filter }) =>
  filter === "all" ? "All items" : `Items ${FILTERS[filter].text.toLowerCase()}`;

/** @param {string} id */
const itemHash = (id) => to("review/item", id);

/* ------------------------------------------------------------------ one item */

/** @param {HTMLElement} stage @param {Context} context @param {Outbox} box @param {string} id */
export function byItem(stage, context, box, id) {
  const { api, navigate } = context;
  const may = context.can("review");
  const list = listOf(context);
  const control = new AbortController();
  /** @type {Map<string, Entry>} */
  const entries = new Map();
  /** @type {Map<string, {row: any, draw: () => void}>} */
  const rows = new Map();
  /** @type {Map<string, string>} */
  const kinds = new Map();
  /** @type {{entry: Entry, before: boolean | null}[]} */
  const acts = [];
  /** @type {any} */
  let item = null;
  let current = 0;

  const previous = h("a.button",
    { role: "link", aria_disabled: "true", aria_label: "Previous item" },
    icon("back"),
    h("span", "Previous"),
  );
  const next = h("a.button", { role: "link", aria_disabled: "true", aria_label: "Next item" },
    h("span", "Next"),
    icon("next"),
  );
  const place = h("span.muted");
  const body = h("div.item", loading("Loading the item…"));
  const undoButton = h("button", { disabled: true, onclick: () => undo() }, icon("undo"), "Undo");
  const suggestions = h("ul.answer-rows", { aria_label: "Suggested tags" });
  const own = h("ul.answer-rows", { aria_label: "Own tags" });
  const said = h("p.muted.small", { role: "status" });
  add(stage,
    h("div.row.item-nav",
      h("a.back", { href: listHash(list) }, icon("back"), listName(list)),
      h("div.grow"),
      place,
      previous,
      next,
    ),
    body,
  );
  context.shortcuts([
    { keys: "↑ ↓", does: "move between tags" },
    { keys: "y", does: "yes" },
    { keys: "n", does: "no" },
    { keys: "u", does: "undo" },
    { keys: "← →", does: "previous, next item" },
    { keys: "/", does: "a further tag" },
  ]);

  /** @param {string} label @param {Partial<Entry>} [known] @returns {Entry} */
  const entryOf = (label, known = {}) => {
    const entry = entries.get(label) || newEntry(id, label, known);
    entries.set(label, entry);
    return entry;
  };

  /** @param {string} label */
  function makeRow(label) {
    const entry = entryOf(label);
    const number = h("span.tile-number");
    const by = h("span.muted.small.answer-by");
    const meter = h("span.grow");
    const yes = h("button.yes", {
        disabled: !may,
        aria_label: `Yes: ${label}`,
        onclick: () => answer(entry, entry.answer === true ? null : true),
      },
      icon("review"),
      h("span", "Yes"),
    );
    const no = h("button.no", {
        disabled: !may,
        aria_label: `No: ${label}`,
        onclick: () => answer(entry, entry.answer === false ? null : false),
      },
      icon("close"),
      h("span", "No"),
    );
    const row = h("li.answer-row",
      { tabindex: "-1", onfocus: () => (current = [...rows.keys()].indexOf(label)) },
      h("a.answer-label", { href: to("review/label", label) }, label),
      kinds.has(label) && kindBadge(kinds.get(label) || ""),
      by,
      meter,
      number,
      h("span.answer-buttons", no, yes),
    );
    const draw = () => {
      drawAnswer(entry, { frame: row, yes, no, number, by });
      clear(meter, entry.probability !== null && bar(entry.probability));
    };
    draw();
    rows.set(label, { row, draw });
    return row;
  }

  /** @param {Entry} entry @param {boolean | null} answered */
  function answer(entry, answered) {
    if (!may || entry.answer === answered) return;
    acts.push({ entry, before: entry.answer });
    record(entry, answered);
  }

  /** @param {Entry} entry @param {boolean | null} answered */
  function record(entry, answered) {
    box.put(entry, answered);
    rows.get(entry.label)?.draw();
    undoButton.disabled = !acts.length;
  }

  function undo() {
    const act = lastAct(acts);
    undoButton.disabled = !acts.length;
    if (act) record(act.entry, act.before);
  }

  async function load() {
    try {
      item = await box.reading(
        api.get(api.model("items", id), { params: { k: 12 }, signal: control.signal }),
      );
    } catch (error) {
      if (!isAbort(error)) clear(body, failed(error, load));
      return;
    }
    for (const one of item.verdicts)
      entryOf(one.label, {
        answer: one.answer,
        saved: one.answer,
        number: one.number,
        by: byWhom(one, ""),
      });
    for (const one of item.suggestions) kinds.set(one.label, one.kind);
    item.suggestions.forEach((/** @type {any} */ one, /** @type {number} */ at) =>
      Object.assign(entryOf(one.label), { probability: one.probability, rank: at + 1 }),
    );
    const tags = new Set(item.tags);
    add(own, item.tags.map(makeRow));
    add(suggestions, [...entries.keys()].filter((label) => !tags.has(label)).map(makeRow));
    clear(body,
      h("figure.item-media",
        medium(context, id, item),
        h("figcaption.small.break",
          id,
          " · ",
          h("a", { href: to("ask/item", id) }, "Why these tags?"),
        ),
      ),
      h("div.item-tags",
        item.tags.length
          ? [h("h2", "Own tags"), own]
          : h("p.muted", "This item has no tags of its own."),
        h("div.row", h("h2.grow", "Suggested"), undoButton),
        rows.size > item.tags.length
          ? suggestions
          : [h("p.muted", "Nothing is suggested for this item."), suggestions],
        may &&
          h("div.stack",
            h("h2", "A further tag"),
            labelBox({
              api,
              name: "A further tag",
              placeholder: "Type a tag; new ones are welcome",
              allowNew: true,
              search: true,
              choose: (label, found) => addTag(label, found?.kind),
            }).element,
          ),
        said,
      ),
    );
    current = Math.min(item.tags.length, rows.size - 1);
    if (document.activeElement === document.body)
      [...rows.values()][current]?.row.focus({ preventScroll: true });
  }

  /** @param {string} label @param {string} [kind] */
  function addTag(label, kind) {
    if (kind) kinds.set(label, kind);
    const entry = entryOf(label);
    if (!rows.has(label)) suggestions.append(makeRow(label));
    answer(entry, true);
    said.textContent = `“${label}”: yes.`;
  }

  const refresh = debounce(async () => {
    try {
      const now = await api.get(api.model("items", id), {
        params: { k: 12 },
        signal: control.signal,
      });
      now.suggestions.forEach((/** @type {any} */ one, /** @type {number} */ at) => {
        kinds.set(one.label, one.kind);
        const entry = entryOf(one.label);
        entry.shift = entry.probability === null ? 0 : one.probability - entry.probability;
        entry.probability = one.probability;
        entry.rank = at + 1;
        if (!rows.has(one.label)) suggestions.append(makeRow(one.label));
        else rows.get(one.label)?.draw();
      });
    } catch {
      // The numbers stay as they were; the answers themselves are told of elsewhere.
    }
  }, 300);

  /** Where the item stands in the list it was chosen from, reading on until it is met. */
  async function locate() {
    try {
      while (!list.ids.includes(id) && list.ids.length < Math.min(list.total ?? 1, MOST_LISTED)) {
        if (!(await readOn(context, 1000, control.signal)).length) break;
      }
      const at = list.ids.indexOf(id);
      if (at === list.ids.length - 1 && list.ids.length < list.total)
        await readOn(context, 48, control.signal);
      if (at < 0) return;
      place.textContent = `${count(at + 1)} of ${count(list.total)}`;
      for (const [link, to] of [
        [previous, list.ids[at - 1]],
        [next, list.ids[at + 1]],
      ]) {
        if (!to) continue;
        link.setAttribute("href", itemHash(to));
        link.removeAttribute("aria-disabled");
      }
    } catch {
      // Without the list there is no next; the item itself is shown all the same.
    }
  }

  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const key = keyOf(event, "input, textarea, select, audio, [contenteditable]");
    if (!key || document.querySelector("dialog[open]")) return;
    const labels = [...rows.keys()];
    const entry = entries.get(labels[current] ?? "");
    const go = (/** @type {number} */ at) => {
      current = Math.max(0, Math.min(labels.length - 1, at));
      rows.get(labels[current])?.row.focus();
    };
    const onRow = /** @type {HTMLElement} */ (event.target).closest(".answer-row") !== null;
    if (key === "u") undo();
    else if ((key === "y" || key === "n") && !onRow)
      go(current); // first show what it would be about
    else if ((key === "y" || key === "n") && entry) (answer(entry, key === "y"), go(current + 1));
    else if (key === "ArrowDown" && rows.size) go(onRow ? current + 1 : current);
    else if (key === "ArrowUp" && rows.size) go(onRow ? current - 1 : current);
    else if (key === "ArrowLeft" && previous.hasAttribute("href"))
      navigate(previous.getAttribute("href"));
    else if (key === "ArrowRight" && next.hasAttribute("href")) navigate(next.getAttribute("href"));
    else return;
    event.preventDefault();
  };
  /** @param {boolean} saved */
  const onBox = (saved) => {
    for (const { draw } of rows.values()) draw();
    undoButton.disabled = !acts.some(isOwn);
    if (saved) refresh();
  };
  document.addEventListener("keydown", onKey);
  box.listeners.add(onBox);
  box.find = (about, label) => {
    if (about !== id || !item) return undefined;
    if (!rows.has(label)) suggestions.append(makeRow(label));
    return entries.get(label);
  };
  load();
  locate();
  return () => {
    control.abort();
    refresh.cancel();
    document.removeEventListener("keydown", onKey);
    box.listeners.delete(onBox);
    box.find = () => undefined;
  };
}
