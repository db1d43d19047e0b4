// @ts-check
/**
 * Review: yes or no to tags of items, by tag or by item.
 *
 * In: `#/review`, `#/review/label/NAME`, `#/review/item`, `#/review/item/ID`, and the questions of
 * the service. Out: verdicts, sent one after the other in the order they were given; what could
 * not be sent is kept and shown until it is.
 */

import { add, clear, debounce, h, s } from "./dom.js";
import { Problem, isAbort } from "./api.js";
import { bar, count, dialog, empty, failed, icon, iconButton, kindBadge, loading, percent, plural, probabilityText } from "./parts.js";
import { labelBox, searchBox } from "./labelbox.js";
import { to } from "./cards.js";

/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./app.js").Route} Route */
/**
 * One question, and what is known of its answer.
 * @typedef {object} Entry
 * @property {string} item
 * @property {string} label
 * @property {number | null} probability as it is shown now
 * @property {number | null} rank
 * @property {string} why
 * @property {boolean | null} answer what the person said
 * @property {boolean | null} saved what the service has
 * @property {number | null} number of the verdict, to undo it
 * @property {number} shift how far the probability moved last
 */
/** @typedef {{entry: Entry, answer: boolean | null, score: number | null, rank: number | null}} Step */

/** How the questions are chosen: strategy, name, meaning. */
const STRATEGIES = [
  ["likeliest", "Likeliest", "The items that most probably carry the tag come first."],
  ["active", "Most telling", "Half of them the likeliest, half those the model is least certain of: it learns most from these."],
  ["errors", "Errors", "Items whose own tags seem to lack this tag, or to have it wrongly."],
];
const REASONS = /** @type {Record<string, string>} */ ({ uncertain: "uncertain", missing: "seems missing", wrong: "has it, seems wrong" });
const ASKED = 24;
const BATCH = 32;

/* ------------------------------------------------------------------ answers on their way */

/** Answers in order: sent at once, and kept until the service has them. */
class Outbox {
  /** @param {import("./api.js").Api} api @param {string} model its id; the box outlives a change of model */
  constructor(api, model) {
    this.api = api;
    this.base = `models/${encodeURIComponent(model)}`;
    /** @type {Step[]} */
    this.waiting = [];
    /** @type {any} */
    this.error = null;
    this.busy = false;
    this.single = false;
    /** Told of every change. @type {Set<(learned?: any) => void>} */
    this.listeners = new Set();
  }

  /** @param {Entry} entry @param {boolean | null} answer null takes it back */
  put(entry, answer) {
    entry.answer = answer;
    this.waiting.push({ entry, answer, score: entry.probability, rank: entry.rank });
    this.send();
  }

  /** Send what waits; stops at the first failure, which the next answer or `send` tries again. */
  async send() {
    if (this.busy) return;
    this.busy = true;
    this.error = null;
    this.tell();
    while (this.waiting.length) {
      const steps = this.next();
      try {
        const learned = await this.deliver(steps);
        this.waiting.splice(0, steps.length);
        this.single = false;
        this.tell(learned || {});
      } catch (error) {
        const refused = error instanceof Problem && error.status >= 400 && error.status < 500;
        if (refused && steps.length > 1) {
          this.single = true; // find the one that is refused
          continue;
        }
        this.error = error;
        break;
      }
    }
    this.busy = false;
    this.tell();
  }

  /** The steps that can go in one request: answers to questions that had none. */
  next() {
    const fresh = (/** @type {Step} */ step) => step.answer !== null && step.entry.number === null;
    /** @type {Step[]} */
    const steps = [];
    for (const step of this.waiting) {
      if (steps.length && (!fresh(step) || steps.some((one) => one.entry === step.entry))) break;
      steps.push(step);
      if (this.single || !fresh(step) || steps.length === BATCH) break;
    }
    return steps;
  }

  /** @param {Step[]} steps */
  async deliver(steps) {
    const [{ entry, answer }] = steps;
    if (entry.number !== null) {
      await this.api.post(`${this.base}/undo`, { numbers: [entry.number] });
      entry.number = null;
      entry.saved = null;
    }
    if (answer === null) return null;
    const verdicts = steps.map((step) => ({ item: step.entry.item, label: step.entry.label, answer: step.answer, score: step.score, rank: step.rank }));
    const learned = await this.api.post(`${this.base}/learn`, { verdicts });
    steps.forEach((step, at) => {
      step.entry.number = learned.numbers[at];
      step.entry.saved = step.answer;
    });
    return learned;
  }

  /** Give up what could not be sent; questions are as the service knows them. */
  discard() {
    for (const { entry } of this.waiting) entry.answer = entry.saved;
    this.waiting = [];
    this.error = null;
    this.single = false;
    this.tell({});
  }

  /** @param {any} [learned] the service's answer, when something reached it */
  tell(learned) {
    for (const listener of this.listeners) listener(learned);
  }
}

/** One box for each model, for as long as the page is open. @type {Map<string, Outbox>} */
const boxes = new Map();

window.addEventListener("beforeunload", (event) => {
  if ([...boxes.values()].some((box) => box.waiting.length)) event.preventDefault();
});

/** @param {Context} context @returns {Outbox} */
function outboxOf({ api, model, toast }) {
  let box = boxes.get(model.id);
  if (!box) {
    box = new Outbox(api, model.id);
    boxes.set(model.id, box);
    const mine = box;
    let told = false;
    box.listeners.add(() => {
      if (mine.error && mine.listeners.size === 1 && !told) toast(`An answer was not saved: ${mine.error.message}`, { error: true });
      told = Boolean(mine.error);
    });
  }
  return box;
}

/* ------------------------------------------------------------------ the view */

/** @param {HTMLElement} root @param {Context} context */
export function mount(root, context) {
  const stage = h("div", { class: "review-stage" });
  const unsent = h("div", { class: "unsent", role: "alert" });
  const sections = h("nav", { class: "segments", aria_label: "Review by" });
  const box = outboxOf(context);
  let leave = () => {};

  const showUnsent = () => {
    /** @type {any} */ (window).__studio.review = { waiting: box.waiting.length, failed: Boolean(box.error) };
    clear(
      unsent,
      box.error &&
        h("div", { class: "notice notice-error" },
          h("p", null, h("strong", null, `${plural(box.waiting.length, "answer")} not saved. `), box.error.message),
          h("div", { class: "row" },
            h("button", { type: "button", class: "primary", onclick: () => box.send() }, "Try again"),
            h("button", { type: "button", onclick: () => box.discard() }, "Discard"))),
    );
  };
  box.listeners.add(showUnsent);

  /** @param {Route} route */
  const update = (route) => {
    leave();
    leave = () => {};
    const [by, ...rest] = route.args;
    const name = rest.join("/");
    const links = [["#/review", "By tag", by !== "item"], ["#/review/item", "By item", by === "item"]];
    clear(sections, links.map(([href, text, here]) => h("a", { href, aria_current: here ? "page" : null }, text)));
    clear(stage);
    if (!context.model.collection) {
      clear(stage, empty("No items to review", "Start the service with a folder or a table of items (“--items”), and they appear here."));
      return;
    }
    if (by === "label" && name) leave = byTag(stage, context, box, name);
    else if (by === "item" && name) leave = byItem(stage, context, box, name);
    else if (by === "item") leave = chooseItem(stage, context);
    else leave = chooseTag(stage, context);
  };

  add(root, h("div", { class: "page" },
    h("header", { class: "view-head" }, h("h1", null, "Review"), sections, h("div", { class: "grow" }), context.model.collection && exportMenu(context)),
    context.model.collection && !context.can("review") && h("p", { class: "notice" }, "You may look, but not answer: your token lacks the scope “review”."),
    unsent,
    stage));
  showUnsent();
  update(context.route);
  return {
    update,
    unmount: () => {
      leave();
      box.listeners.delete(showUnsent);
    },
  };
}

/* ------------------------------------------------------------------ by tag: which */

/** @param {HTMLElement} stage @param {Context} context */
function chooseTag(stage, context) {
  const { api, navigate } = context;
  const go = (/** @type {string} */ label) => navigate(to("review/label", label));
  const unseen = h("div", { class: "tag-cards" }, loading("Looking for tags worth asking about…"));
  const uncertain = h("div", { class: "tag-cards" }, loading());
  add(stage,
    h("p", { class: "lead" }, "Choose a tag, and say yes or no to the items that may carry it. Every answer counts at once."),
    searchBox({ api, name: "Tag to review", placeholder: "Search a tag", choose: go }).element,
    h("section", { aria_label: "Unseen tags" },
      h("h2", null, "Unseen tags"),
      h("p", { class: "muted" }, "No training item carries these: a few answers help them most. Those that did worst when held out come first."),
      unseen),
    h("section", { aria_label: "Least certain" },
      h("h2", null, "Least certain"),
      h("p", { class: "muted" }, "Tags with items that the model cannot decide on."),
      uncertain),
  );
  context.shortcuts([{ keys: "/", does: "search a tag" }]);

  const control = new AbortController();
  const card = (/** @type {any} */ label, /** @type {string} */ says) =>
    h("a", { class: "tag-card", href: to("review/label", label.label) },
      h("strong", null, label.label),
      h("span", { class: "muted" }, says));
  const answers = (/** @type {any} */ one) => one.verdicts.yes + one.verdicts.no;
  const fill = async () => {
    try {
      const found = await api.get(api.model("labels"), { params: { kind: "unseen", order: "count", limit: 200 }, signal: control.signal });
      const open = found.labels.filter((/** @type {any} */ one) => !one.blocked);
      open.sort((/** @type {any} */ a, /** @type {any} */ b) =>
        Math.min(answers(a), 10) - Math.min(answers(b), 10) || (a.quality_unseen ?? 2) - (b.quality_unseen ?? 2) || b.count - a.count);
      clear(unseen, open.length
        ? open.slice(0, 12).map((/** @type {any} */ one) => card(one, answers(one) ? plural(answers(one), "answer") : plural(one.count, "tag set")))
        : h("p", { class: "muted" }, "This model has no unseen tags."));
    } catch (error) {
      if (!isAbort(error)) clear(unseen, failed(error, fill));
    }
  };
  const fillUncertain = async () => {
    try {
      const { questions } = await api.post(api.model("ask"), { label: null, k: 60, strategy: "active" }, { signal: control.signal });
      /** @type {Map<string, number>} */
      const nearest = new Map();
      for (const one of questions) {
        const known = nearest.get(one.label);
        if (known === undefined || Math.abs(one.probability - 0.5) < Math.abs(known - 0.5)) nearest.set(one.label, one.probability);
      }
      const order = [...nearest].sort((a, b) => Math.abs(a[1] - 0.5) - Math.abs(b[1] - 0.5)).slice(0, 12);
      clear(uncertain, order.length ? order.map(([label, p]) => card({ label }, `probability ${probabilityText(p)}`)) : h("p", { class: "muted" }, "Nothing left to ask."));
    } catch (error) {
      if (!isAbort(error)) clear(uncertain, failed(error, fillUncertain));
    }
  };
  fill();
  fillUncertain();
  return () => control.abort();
}

/* ------------------------------------------------------------------ by tag: the board */

/** @param {HTMLElement} stage @param {Context} context @param {Outbox} box @param {string} label */
function byTag(stage, context, box, label) {
  const { api, state } = context;
  const may = context.can("review");
  const settings = (state.review = state.review || { strategy: "likeliest" });
  const control = new AbortController();
  /** @type {Entry[]} */
  let entries = [];
  /** @type {Map<Entry, {tile: any, draw: () => void}>} */
  const tiles = new Map();
  /** What was done, to undo it. @type {{entry: Entry, before: boolean | null}[]} */
  let acts = [];
  /** The answers in order, for the sparkline. @type {Entry[]} */
  let given = [];
  /** @type {number | null} */
  let expected = null;
  let current = 0;
  /** @type {{close: () => void, draw: () => void} | null} */
  let large = null;
  let turn = 0;

  const board = h("div", { class: "board", role: "list", aria_label: `Items for ${label}` });
  const progress = h("div", { class: "progress", role: "status" });
  const about = h("span", { class: "row" });
  const means = h("p", { class: "muted small" });
  const more = h("div", { class: "row center" });
  const undoButton = h("button", { type: "button", disabled: true, onclick: () => undo() }, icon("undo"), "Undo");
  const strategies = h("fieldset", { class: "segments", aria_label: "Which items" },
    STRATEGIES.map(([value, name, says]) =>
      h("label", { title: says },
        h("input", { type: "radio", name: "strategy", value, checked: value === settings.strategy, onchange: () => ((settings.strategy = value), load()) }),
        h("span", null, name))));
  add(stage,
    h("div", { class: "board-head" },
      h("div", { class: "row" }, h("a", { class: "back", href: "#/review" }, icon("back"), "All tags"), h("h2", null, label), about),
      h("div", { class: "row" }, strategies, means)),
    h("div", { class: "board-status" }, progress, undoButton),
    board,
    more);
  context.shortcuts([
    { keys: "← → ↑ ↓", does: "move between items" },
    { keys: "y", does: "yes, it carries the tag" },
    { keys: "n", does: "no" },
    { keys: "Space", does: "skip to the next open one" },
    { keys: "u", does: "undo" },
    { keys: "f", does: "full size" },
    { keys: "r", does: "sort the open ones again" },
  ]);

  api.get(api.model("labels", label), { signal: control.signal }).then(
    (card) => {
      clear(about, kindBadge(card.kind), h("a", { href: to("vocabulary", label) }, "In the vocabulary"));
    },
    () => {},
  );

  /** @param {any} one @returns {Entry} */
  const entryOf = (one) => ({ item: one.item, label: one.label, probability: one.probability, rank: one.rank ?? null, why: one.why || "", answer: null, saved: null, number: null, shift: 0 });
  const ask = (/** @type {number} */ k) => api.post(api.model("ask"), { label, k, strategy: settings.strategy }, { signal: control.signal });
  const isOpen = (/** @type {Entry} */ entry) => entry.answer === null;

  async function load() {
    turn += 1;
    const mine = turn;
    tiles.clear();
    entries = [];
    acts = [];
    given = [];
    current = 0;
    means.textContent = (STRATEGIES.find(([value]) => value === settings.strategy) || STRATEGIES[0])[2];
    clear(more);
    clear(progress);
    undoButton.disabled = true;
    clear(board, loading("Ranking the items…"));
    try {
      const { questions } = await ask(ASKED);
      if (mine !== turn) return;
      clear(board);
      append(questions);
      if (!entries.length) {
        clear(board, empty(`Nothing to ask about “${label}”`, "Every item was answered for, or carries the tag already.",
          h("a", { class: "button", href: "#/review" }, "Choose another tag")));
      } else focus(0, document.activeElement === document.body || document.activeElement === document.querySelector("main"));
      drawProgress();
    } catch (error) {
      if (mine === turn && !isAbort(error)) clear(board, failed(error, load));
    }
  }

  /** @param {any[]} questions */
  function append(questions) {
    const known = new Set(entries.map((one) => one.item));
    for (const one of questions) {
      if (known.has(one.item)) continue;
      const entry = entryOf(one);
      entries.push(entry);
      const tile = makeTile(entry);
      tiles.set(entry, tile);
      board.append(tile.tile);
    }
    clear(more, entries.length && [
      h("button", { type: "button", onclick: showMore }, "More items"),
      h("button", { type: "button", onclick: sort }, "Sort the open ones again"),
    ]);
  }

  /** @param {Entry} entry */
  function makeTile(entry) {
    const at = () => entries.indexOf(entry);
    const name = baseName(entry.item);
    /** By hand the page stays where it is, so that the next tap hits what was aimed at. @param {boolean | null} said */
    const answerHere = (said) => {
      focus(at(), false);
      answer(entry, said, false);
    };
    const number = h("span", { class: "tile-number" });
    const reason = REASONS[entry.why];
    const face = h("button", {
      type: "button", class: "tile-face", disabled: !may, aria_label: `Yes: ${name}`, tabindex: "-1",
      onclick: () => answerHere(entry.answer === true ? null : true),
    }, picture(context, entry.item, 256));
    const yes = h("button", { type: "button", class: "yes", disabled: !may, tabindex: "-1", onclick: () => answerHere(true) }, icon("review"), "Yes");
    const no = h("button", { type: "button", class: "no", disabled: !may, tabindex: "-1", onclick: () => answerHere(false) }, icon("close"), "No");
    const big = iconButton("fit", "Full size", { class: "icon-button tile-large", tabindex: "-1", onclick: () => (focus(at()), enlarge()) });
    const tile = h("article", {
      class: "tile", role: "listitem", tabindex: "-1",
      onfocus: () => focus(at(), false),
      oncontextmenu: (/** @type {any} */ event) => {
        if (!may || event.pointerType === "touch") return;
        event.preventDefault();
        answerHere(entry.answer === false ? null : false);
      },
    }, face, big, h("span", { class: "tile-mark", aria_hidden: "true" }),
      h("div", { class: "tile-facts" }, h("span", { class: "tile-name", title: entry.item }, name), number),
      reason && h("span", { class: "muted small" }, reason),
      h("div", { class: "tile-buttons" }, no, yes));
    const draw = () => {
      const said = entry.answer === null ? "open" : entry.answer ? "yes" : "no";
      tile.dataset.answer = said;
      tile.dataset.sending = String(entry.answer !== entry.saved);
      yes.setAttribute("aria-pressed", String(entry.answer === true));
      no.setAttribute("aria-pressed", String(entry.answer === false));
      const moved = Math.abs(entry.shift) >= 0.005 && entry.answer === null;
      number.dataset.moved = moved ? (entry.shift > 0 ? "up" : "down") : "";
      clear(number, probabilityText(entry.probability), moved && h("span", { aria_hidden: "true" }, entry.shift > 0 ? " ▲" : " ▼"));
      const words = { open: "not answered", yes: "answered yes", no: "answered no" }[said];
      tile.setAttribute("aria-label", `${name}, probability ${probabilityText(entry.probability)}, ${words}`);
    };
    draw();
    return { tile, draw };
  }

  /** Make one tile the one that keys speak of. @param {number} at @param {boolean} [move] take the keyboard there @param {boolean} [scroll] */
  function focus(at, move = true, scroll = true) {
    const before = tiles.get(entries[current]);
    if (before) enable(before.tile, false);
    current = Math.max(0, Math.min(entries.length - 1, at));
    const now = tiles.get(entries[current]);
    if (!now) return;
    enable(now.tile, true);
    if (move && !large) {
      now.tile.focus({ preventScroll: true });
      if (scroll) now.tile.scrollIntoView({ block: "nearest" });
    }
    large?.draw();
  }

  /** @param {HTMLElement} tile @param {boolean} on */
  function enable(tile, on) {
    tile.tabIndex = on ? 0 : -1;
    tile.classList.toggle("current", on);
    for (const button of tile.querySelectorAll("button")) button.tabIndex = on ? 0 : -1;
  }

  /** @param {Entry} entry @param {boolean | null} said @param {boolean} [scroll] to the next open one */
  function answer(entry, said, scroll = true) {
    if (!may || entry.answer === said) return;
    acts.push({ entry, before: entry.answer });
    record(entry, said);
    if (said !== null) skip(scroll);
  }

  /** @param {Entry} entry @param {boolean | null} said */
  function record(entry, said) {
    given = given.filter((one) => one !== entry);
    if (said !== null) given.push(entry);
    box.put(entry, said);
    tiles.get(entry)?.draw();
    undoButton.disabled = !acts.length;
    drawProgress();
    large?.draw();
  }

  function undo() {
    const act = acts.pop();
    if (!act) return;
    record(act.entry, act.before);
    focus(entries.indexOf(act.entry));
  }

  /** On to the next open one, from here or else from the start. @param {boolean} [scroll] */
  function skip(scroll = true) {
    for (let step = 1; step <= entries.length; step += 1) {
      const at = (current + step) % entries.length;
      if (isOpen(entries[at])) return focus(at, true, scroll);
    }
    if (entries.length) focus(current, true, scroll);
  }

  function drawProgress() {
    const yes = given.filter((one) => one.answer).length;
    const waits = box.waiting.length;
    clear(progress,
      h("span", null, h("strong", null, count(given.length)), " answered"),
      given.length > 0 && h("span", null, h("strong", null, percent(yes / given.length)), " yes"),
      expected !== null && h("span", { title: "Foretold by the answers: how many of the likeliest open items carry the tag" }, h("strong", null, percent(expected)), " expected of the next"),
      given.length > 1 && sparkline(given.map((one) => Boolean(one.answer))),
      given.length > 0 && h("span", { class: "muted" }, waits ? `saving ${count(waits)}…` : "saved"));
  }

  const refresh = debounce(async () => {
    const mine = turn;
    const open = entries.filter(isOpen);
    try {
      const { questions } = await ask(Math.min(300, Math.max(60, open.length * 3)));
      if (mine !== turn) return;
      const fresh = new Map(questions.map((/** @type {any} */ one) => [one.item, one]));
      for (const entry of open) {
        const now = fresh.get(entry.item);
        if (!now || !isOpen(entry)) continue;
        entry.shift = now.probability - (entry.probability ?? now.probability);
        entry.probability = now.probability;
        entry.rank = now.rank ?? entry.rank;
        tiles.get(entry)?.draw();
      }
      if (open.length < 7) append(questions.filter((/** @type {any} */ one) => !entries.some((entry) => entry.item === one.item)).slice(0, 12));
      large?.draw();
    } catch (error) {
      if (!isAbort(error) && mine === turn) context.toast(`The probabilities could not be brought up to date: ${/** @type {any} */ (error).message}`, { error: true });
    }
  }, 300);

  async function showMore() {
    try {
      const before = entries.length;
      const { questions } = await ask(Math.min(500, entries.filter(isOpen).length + ASKED));
      append(questions);
      if (entries.length > before) focus(before);
      else context.toast("There are no further items to ask about.");
    } catch (error) {
      if (!isAbort(error)) context.toast(/** @type {any} */ (error).message, { error: true });
    }
  }

  /** Answered ones stay where they were said, the open ones follow in the order of now. */
  function sort() {
    const open = entries.filter(isOpen).sort((a, b) => (b.probability ?? 0) - (a.probability ?? 0));
    entries = [...entries.filter((one) => !isOpen(one)), ...open];
    for (const entry of entries) board.append(/** @type {any} */ (tiles.get(entry)).tile);
    for (const { tile } of tiles.values()) enable(tile, false);
    focus(entries.length - open.length);
  }

  function enlarge() {
    if (large || !entries.length) return;
    const body = h("div", { class: "large", tabindex: "-1", autofocus: true });
    let shown = "";
    const draw = () => {
      const entry = entries[current];
      const inside = body.contains(document.activeElement);
      if (shown !== entry.item) {
        shown = entry.item;
        const tags = h("p", { class: "muted" });
        api.get(api.model("items", entry.item), { params: { k: 1 }, signal: control.signal }).then(
          (item) => shown === entry.item && clear(tags, item.tags.length ? `Own tags: ${item.tags.join(", ")}` : "No tags of its own"),
          () => {},
        );
        clear(body, h("div", { class: "large-media" }, medium(context, entry.item)), h("p", { class: "small break" }, entry.item), tags, h("div", { class: "row center large-buttons" }));
      }
      clear(/** @type {any} */ (body.querySelector(".large-buttons")),
        iconButton("back", "Previous item", { onclick: () => focus(current - 1) }),
        h("button", { type: "button", class: "no", disabled: !may, aria_pressed: String(entry.answer === false), onclick: () => answer(entry, false) }, icon("close"), "No"),
        h("span", { class: "tile-number" }, probabilityText(entry.probability)),
        h("button", { type: "button", class: "yes", disabled: !may, aria_pressed: String(entry.answer === true), onclick: () => answer(entry, true) }, icon("review"), "Yes"),
        iconButton("next", "Next item", { onclick: () => focus(current + 1) }));
      if (inside) body.focus();
    };
    dialog(label, (close) => {
      large = { close, draw };
      return body;
    }).then(() => {
      large = null;
      focus(current);
    });
    draw();
  }

  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.defaultPrevented || event.altKey || !entries.length) return;
    if (target.closest("input:not([type=radio]), textarea, select, [contenteditable]")) return;
    if (document.querySelector("dialog[open]") && !large) return;
    const undoes = event.key === "u" || ((event.ctrlKey || event.metaKey) && event.key === "z");
    if ((event.ctrlKey || event.metaKey) && !undoes) return;
    const onControl = target.closest("a, button, summary, input") !== null;
    const across = large ? 1 : columns(board);
    if (undoes) undo();
    else if (event.key === "y") answer(entries[current], true);
    else if (event.key === "n") answer(entries[current], false);
    else if (event.key === "f") large ? large.close() : enlarge();
    else if (event.key === "r" && !large) sort();
    else if (event.key === " " && !onControl) skip();
    else if (target.closest("input")) return;
    else if (event.key === "ArrowRight") focus(current + 1);
    else if (event.key === "ArrowLeft") focus(current - 1);
    else if (event.key === "ArrowDown") focus(current + across);
    else if (event.key === "ArrowUp") focus(current - across);
    else return;
    event.preventDefault();
  };
  /** @param {any} [learned] */
  const onBox = (learned) => {
    for (const one of learned?.labels || []) if (one.label === label) expected = one.expected_precision ?? null;
    for (const { draw } of tiles.values()) draw();
    drawProgress();
    if (learned) refresh();
  };
  document.addEventListener("keydown", onKey);
  box.listeners.add(onBox);
  load();
  return () => {
    turn += 1;
    control.abort();
    refresh.cancel();
    large?.close();
    document.removeEventListener("keydown", onKey);
    box.listeners.delete(onBox);
  };
}

/** How many tiles stand side by side. @param {HTMLElement} board */
function columns(board) {
  const tiles = /** @type {HTMLElement[]} */ ([...board.children]);
  const below = tiles.findIndex((one) => one.offsetTop > tiles[0].offsetTop);
  return below > 0 ? below : Math.max(1, tiles.length);
}

/** The share of yes so far, answer by answer. @param {boolean[]} answers */
function sparkline(answers) {
  let yes = 0;
  const shares = answers.map((one, at) => (yes += Number(one)) / (at + 1));
  const [width, height] = [96, 24];
  const points = shares.map((share, at) => `${((at / (shares.length - 1)) * width).toFixed(1)},${(height - 2 - share * (height - 4)).toFixed(1)}`);
  return s("svg", { class: "sparkline", viewBox: `0 0 ${width} ${height}`, role: "img", aria_label: `Precision so far, answer by answer; now ${percent(shares[shares.length - 1])}` },
    s("polyline", { points: points.join(" ") }));
}

/* ------------------------------------------------------------------ by item: which */

/** @param {HTMLElement} stage @param {Context} context */
function chooseItem(stage, context) {
  const { api, state } = context;
  const list = (state.reviewItems = state.reviewItems || { query: "", reviewed: "", ids: [], total: null });
  const grid = h("div", { class: "board board-small" });
  const foot = h("div", { class: "row center" });
  const found = h("p", { class: "muted", role: "status" });
  let control = new AbortController();
  const search = h("input", { type: "search", data_search: "", value: list.query, placeholder: "Search ids and tags", aria_label: "Search items", autocomplete: "off", oninput: debounce(() => ((list.query = search.value.trim()), load()), 200) });
  const filter = h("select", { aria_label: "Which items", onchange: () => ((list.reviewed = filter.value), load()) },
    [["", "All items"], ["false", "Without answers"], ["true", "With answers"]].map(([value, text]) => h("option", { value, selected: value === list.reviewed }, text)));
  add(stage, h("div", { class: "row" }, h("div", { class: "grow search-box" }, search), filter), found, grid, foot);
  context.shortcuts([{ keys: "/", does: "search items" }]);

  async function load() {
    control.abort();
    control = new AbortController();
    list.ids = [];
    clear(foot);
    clear(found);
    clear(grid, loading("Loading items…"));
    await page();
  }

  async function page() {
    const mine = control;
    try {
      const { total, items } = await api.get(api.model("items"), { params: { ...listParams(list), offset: list.ids.length, limit: 48 }, signal: mine.signal });
      if (!list.ids.length) clear(grid);
      list.total = total;
      list.ids.push(...items.map((/** @type {any} */ one) => one.id));
      found.textContent = plural(total, "item");
      add(grid, items.map((/** @type {any} */ item) =>
        h("a", { class: "tile", href: itemHash(item.id), aria_label: `${baseName(item.id)}, ${plural(item.verdicts.length, "answer")}` },
          h("div", { class: "tile-face" }, picture(context, item.id, 256, item)),
          h("div", { class: "tile-facts" }, h("span", { class: "tile-name", title: item.id }, baseName(item.id)), item.verdicts.length > 0 && h("span", { class: "muted small" }, plural(item.verdicts.length, "answer"))))));
      if (!total) clear(grid, empty("No item matches", "Try fewer letters, or all items."));
      clear(foot, list.ids.length < total && items.length > 0 && h("button", { type: "button", onclick: page }, "More items"));
    } catch (error) {
      if (!isAbort(error)) clear(list.ids.length ? foot : grid, failed(error, list.ids.length ? page : load));
    }
  }
  load();
  return () => control.abort();
}

/** @param {any} list */
const listParams = (list) => ({ query: list.query, reviewed: list.reviewed });
/** @param {string} id */
const itemHash = (id) => to("review/item", id);
/** @param {string} id */
const baseName = (id) => id.split("/").pop() || id;

/* ------------------------------------------------------------------ by item: one */

/** @param {HTMLElement} stage @param {Context} context @param {Outbox} box @param {string} id */
function byItem(stage, context, box, id) {
  const { api, state, navigate } = context;
  const may = context.can("review");
  const list = (state.reviewItems = state.reviewItems || { query: "", reviewed: "", ids: [], total: null });
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

  const previous = h("a", { class: "button", role: "link", aria_disabled: "true", aria_label: "Previous item" }, icon("back"), h("span", null, "Previous"));
  const next = h("a", { class: "button", role: "link", aria_disabled: "true", aria_label: "Next item" }, h("span", null, "Next"), icon("next"));
  const place = h("span", { class: "muted" });
  const body = h("div", { class: "item" }, loading("Loading the item…"));
  const undoButton = h("button", { type: "button", disabled: true, onclick: () => undo() }, icon("undo"), "Undo");
  const suggestions = h("ul", { class: "answer-rows", aria_label: "Suggested tags" });
  const own = h("ul", { class: "answer-rows", aria_label: "Own tags" });
  const said = h("p", { class: "muted small", role: "status" });
  add(stage,
    h("div", { class: "row item-nav" }, h("a", { class: "back", href: "#/review/item" }, icon("back"), "All items"), h("div", { class: "grow" }), place, previous, next),
    body);
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
    let entry = entries.get(label);
    if (!entry) {
      entry = { item: id, label, probability: null, rank: null, why: "", answer: null, saved: null, number: null, shift: 0, ...known };
      entries.set(label, entry);
    }
    return entry;
  };

  /** @param {string} label */
  function makeRow(label) {
    const entry = entryOf(label);
    const number = h("span", { class: "tile-number" });
    const meter = h("span", { class: "grow" });
    const yes = h("button", { type: "button", class: "yes", disabled: !may, aria_label: `Yes: ${label}`, onclick: () => answer(entry, entry.answer === true ? null : true) }, icon("review"), h("span", null, "Yes"));
    const no = h("button", { type: "button", class: "no", disabled: !may, aria_label: `No: ${label}`, onclick: () => answer(entry, entry.answer === false ? null : false) }, icon("close"), h("span", null, "No"));
    const row = h("li", { class: "answer-row", tabindex: "-1", onfocus: () => (current = [...rows.keys()].indexOf(label)) },
      h("a", { class: "answer-label", href: to("review/label", label) }, label), kinds.has(label) && kindBadge(kinds.get(label) || ""), meter, number, h("span", { class: "answer-buttons" }, no, yes));
    const draw = () => {
      row.dataset.answer = entry.answer === null ? "open" : entry.answer ? "yes" : "no";
      row.dataset.sending = String(entry.answer !== entry.saved);
      yes.setAttribute("aria-pressed", String(entry.answer === true));
      no.setAttribute("aria-pressed", String(entry.answer === false));
      clear(meter, entry.probability !== null && bar(entry.probability));
      const moved = Math.abs(entry.shift) >= 0.005 && entry.answer === null;
      number.dataset.moved = moved ? (entry.shift > 0 ? "up" : "down") : "";
      clear(number, entry.probability === null ? "" : probabilityText(entry.probability), moved && h("span", { aria_hidden: "true" }, entry.shift > 0 ? " ▲" : " ▼"));
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
    const act = acts.pop();
    if (act) record(act.entry, act.before);
  }

  async function load() {
    try {
      item = await api.get(api.model("items", id), { params: { k: 12 }, signal: control.signal });
    } catch (error) {
      if (!isAbort(error)) clear(body, failed(error, load));
      return;
    }
    for (const one of item.verdicts) entryOf(one.label, { answer: one.answer, saved: one.answer, number: one.number });
    for (const one of item.suggestions) kinds.set(one.label, one.kind);
    item.suggestions.forEach((/** @type {any} */ one, /** @type {number} */ at) => Object.assign(entryOf(one.label), { probability: one.probability, rank: at + 1 }));
    const tags = new Set(item.tags);
    add(own, item.tags.map(makeRow));
    add(suggestions, [...entries.keys()].filter((label) => !tags.has(label)).map(makeRow));
    clear(body,
      h("figure", { class: "item-media" }, medium(context, id, item), h("figcaption", { class: "small break" }, id, " · ", h("a", { href: to("ask/item", id) }, "Why these tags?"))),
      h("div", { class: "item-tags" },
        item.tags.length ? [h("h2", null, "Own tags"), own] : h("p", { class: "muted" }, "This item has no tags of its own."),
        h("div", { class: "row" }, h("h2", { class: "grow" }, "Suggested"), undoButton),
        rows.size > item.tags.length ? suggestions : [h("p", { class: "muted" }, "Nothing is suggested for this item."), suggestions],
        may && h("div", { class: "stack" },
          h("h2", null, "A further tag"),
          labelBox({ api, name: "A further tag", placeholder: "Type a tag; new ones are welcome", allowNew: true, search: true, choose: (label, found) => addTag(label, found?.kind) }).element),
        said));
    current = Math.min(item.tags.length, rows.size - 1);
    if (document.activeElement === document.body) [...rows.values()][current]?.row.focus({ preventScroll: true });
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
      const now = await api.get(api.model("items", id), { params: { k: 12 }, signal: control.signal });
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
      while (!list.ids.includes(id) && (list.total === null || list.ids.length < list.total)) {
        const { total, items } = await api.get(api.model("items"), { params: { ...listParams(list), offset: list.ids.length, limit: 200 }, signal: control.signal });
        list.total = total;
        if (!items.length) break;
        list.ids.push(...items.map((/** @type {any} */ one) => one.id));
      }
      const at = list.ids.indexOf(id);
      if (at === list.ids.length - 1 && list.ids.length < list.total) {
        const { items } = await api.get(api.model("items"), { params: { ...listParams(list), offset: list.ids.length, limit: 48 }, signal: control.signal });
        list.ids.push(...items.map((/** @type {any} */ one) => one.id));
      }
      if (at < 0) return;
      place.textContent = `${count(at + 1)} of ${count(list.total)}`;
      for (const [link, to] of [[previous, list.ids[at - 1]], [next, list.ids[at + 1]]]) {
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
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    if (target.closest("input, textarea, select, audio, [contenteditable]")) return;
    const undoes = event.key === "u" || ((event.ctrlKey || event.metaKey) && event.key === "z");
    if ((event.ctrlKey || event.metaKey) && !undoes) return;
    const labels = [...rows.keys()];
    const entry = entries.get(labels[current] ?? "");
    const go = (/** @type {number} */ at) => {
      current = Math.max(0, Math.min(labels.length - 1, at));
      rows.get(labels[current])?.row.focus();
    };
    const onRow = target.closest(".answer-row") !== null;
    if (undoes) undo();
    else if ((event.key === "y" || event.key === "n") && !onRow) go(current); // first show what it would be about
    else if (event.key === "y" && entry) (answer(entry, true), go(current + 1));
    else if (event.key === "n" && entry) (answer(entry, false), go(current + 1));
    else if (event.key === "ArrowDown" && rows.size) go(onRow ? current + 1 : current);
    else if (event.key === "ArrowUp" && rows.size) go(onRow ? current - 1 : current);
    else if (event.key === "ArrowLeft" && previous.hasAttribute("href")) navigate(previous.getAttribute("href"));
    else if (event.key === "ArrowRight" && next.hasAttribute("href")) navigate(next.getAttribute("href"));
    else return;
    event.preventDefault();
  };
  /** @param {any} [learned] */
  const onBox = (learned) => {
    for (const { draw } of rows.values()) draw();
    if (learned) refresh();
  };
  document.addEventListener("keydown", onKey);
  box.listeners.add(onBox);
  load();
  locate();
  return () => {
    control.abort();
    refresh.cancel();
    document.removeEventListener("keydown", onKey);
    box.listeners.delete(onBox);
  };
}

/* ------------------------------------------------------------------ what an item looks like */

/**
 * A small picture of an item or, without one, its own tags.
 * @param {Context} context @param {string} id @param {number} size @param {any} [item] if it is known already
 */
export function picture(context, id, size, item) {
  const { api, model } = context;
  const frame = h("span", { class: "picture" });
  const words = async () => {
    frame.classList.add("picture-words");
    clear(frame, model.collection?.media === "audio" && icon("sound"));
    try {
      const { tags } = item || (await api.get(api.model("items", id), { params: { k: 1 } }));
      add(frame, h("span", null, tags.length ? tags.slice(0, 8).join(", ") : "no tags"));
    } catch {
      add(frame, h("span", null, id));
    }
  };
  if (model.collection?.media !== "image") {
    words();
    return frame;
  }
  const image = h("img", { alt: "", loading: "lazy", decoding: "async", onerror: words });
  frame.append(image);
  api.media(item?.thumbnail || `${api.model("media", id)}?size=${size}`).then((url) => image.setAttribute("src", url), words);
  return frame;
}

/**
 * An item in full: the picture, the sound, or its tags.
 * @param {Context} context @param {string} id @param {any} [item]
 */
function medium(context, id, item) {
  const { api, model } = context;
  const kind = model.collection?.media;
  if (kind !== "image" && kind !== "audio") return picture(context, id, 256, item);
  const element = kind === "audio" ? h("audio", { controls: true, aria_label: baseName(id) }) : h("img", { alt: baseName(id) });
  const instead = () => element.replaceWith(h("p", { class: "muted" }, "The file of this item cannot be shown."));
  element.addEventListener("error", instead);
  api.media(item?.media || api.model("media", id)).then((url) => element.setAttribute("src", url), instead);
  return element;
}

/* ------------------------------------------------------------------ export */

/** @param {Context} context */
function exportMenu(context) {
  const { api, model, toast } = context;
  const forms = [
    ["jsonl", "Answers (JSONL)", "every answer, one a line", "answers.jsonl"],
    ["documents", "Documents (JSONL)", "items with their tags, to fit a model again", "documents.jsonl"],
    ["label-studio", "Label Studio (JSON)", "tasks with predictions", "label-studio.json"],
  ];
  const download = async (/** @type {string} */ form, /** @type {string} */ file) => {
    menu.open = false;
    try {
      const answer = await api.binary(api.model("export"), { params: { form } });
      const named = /filename="?([^";]+)"?/.exec(answer.headers.get("Content-Disposition") || "");
      const url = URL.createObjectURL(await answer.blob());
      h("a", { href: url, download: named ? named[1] : `${model.id}-${file}` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      toast("Exported.");
    } catch (error) {
      toast(/** @type {any} */ (error).message, { error: true });
    }
  };
  const sidecars = async () => {
    menu.open = false;
    /** @type {any} */
    let would;
    try {
      would = await api.post(api.model("export/sidecars"), { dry_run: true });
    } catch (error) {
      toast(/** @type {any} */ (error).message, { error: true });
      return;
    }
    const sure = await dialog("Write sidecars?", (close) =>
      h("div", { class: "stack" },
        h("p", null, would.files ? `${plural(would.tags, "tag")} would be written to XMP files beside ${plural(would.files, "item")}.` : "There is nothing to write: no item has an accepted tag."),
        h("div", { class: "row end" },
          h("button", { type: "button", onclick: () => close() }, "Cancel"),
          would.files > 0 && h("button", { type: "button", class: "primary", onclick: () => close(true) }, "Write the files"))));
    if (!sure) return;
    try {
      const done = await api.post(api.model("export/sidecars"), { dry_run: false });
      toast(`${plural(done.tags, "tag")} written beside ${plural(done.files, "item")}.`);
    } catch (error) {
      toast(/** @type {any} */ (error).message, { error: true });
    }
  };
  const menu = h("details", { class: "menu" },
    h("summary", null, icon("download"), "Export"),
    h("div", { class: "menu-items" },
      forms.map(([form, name, says, file]) => h("button", { type: "button", onclick: () => download(form, file) }, h("strong", null, name), h("span", { class: "muted small" }, says))),
      h("button", { type: "button", onclick: sidecars }, h("strong", null, "Sidecars (XMP)"), h("span", { class: "muted small" }, "tags beside the files; asks first"))));
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
    if (event.relatedTarget && !menu.contains(/** @type {Node} */ (event.relatedTarget))) menu.open = false;
  });
  return menu;
}
