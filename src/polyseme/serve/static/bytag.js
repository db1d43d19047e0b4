// @ts-check
/**
 * Review by tag: which tag, and then a board of the items that may carry it.
 *
 * In: the questions of the service. Out: answers, put into the box; what was refused stays visible.
 */

import { add, clear, debounce, h, s } from "./dom.js";
import { isAbort } from "./api.js";
import { byWords, conflictLines, drawAnswer, keyOf, isOwn, lastAct, newEntry } from "./answers.js";
import {
  count,
  dialog,
  empty,
  failed,
  icon,
  iconButton,
  kindBadge,
  loading,
  percent,
  plural,
  probabilityText,
  segments,
} from "./parts.js";
import { searchBox } from "./labelbox.js";
import { to } from "./cards.js";
import { Names, itemWord, medium, picture, untaggedLink } from "./items.js";

/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./answers.js").Entry} Entry */
/** @typedef {import("./answers.js").Outbox} Outbox */

/** How the questions are chosen: strategy, name, meaning. */
const STRATEGIES = [
  ["likeliest", "Likeliest", "The items that most probably carry the tag come first."],
  [
    "active",
    "Most telling",
    "Half of them the likeliest, half those the model is least certain of: it learns most from these.",
  ],
  [
    "errors",
    "Errors",
    "Only items on which the model and their own tags disagree: the tag is doubtful, or perhaps missing.",
  ],
];
const REASONS = /** @type {Record<string, string>} */ ({
  uncertain: "uncertain",
  missing: "perhaps missing",
  doubtful: "has it, doubtful",
});
const ASKED = 24;

/* ------------------------------------------------------------------ which tag */

/** @param {HTMLElement} stage @param {Context} context */
export function chooseTag(stage, context) {
  const { api, model, navigate } = context;
  const without = ["unseen", "oov"].filter((kind) => model.kinds[kind] > 0);
  const go = (/** @type {string} */ label) => navigate(to("review/label", label));
  const unseen = h("div.tag-cards", loading("Looking for tags worth asking about…"));
  const uncertain = h("div.tag-cards", loading());
  add(stage,
    h("p.lead",
      "Choose a tag, and say yes or no to the items that may carry it. Every answer counts at once.",
    ),
    searchBox({ api, name: "Tag to review", placeholder: "Search a tag", choose: go }).element,
    untaggedLink(model) && h("div.row", untaggedLink(model)),
    without.length > 0 &&
      h("section", { aria_label: "Unseen and new tags" },
        h("h2", "Unseen and new tags"),
        h("p.muted",
          "These were not learned from items: a few answers help them most. Those that did worst when held out come first.",
        ),
        unseen,
      ),
    h("section", { aria_label: "Least certain" },
      h("h2", "Least certain"),
      h("p.muted", "Tags with items that the model cannot decide on."),
      uncertain,
    ),
  );
  context.shortcuts([{ keys: "/", does: "search a tag" }]);

  const control = new AbortController();
  const card = (/** @type {any} */ label, /** @type {string} */ says) =>
    h("a.tag-card", { href: to("review/label", label.label) },
      h("strong", label.label),
      h("span.muted", says),
    );
  const answers = (/** @type {any} */ one) => one.verdicts.yes + one.verdicts.no;
  const fill = async () => {
    try {
      const found = await Promise.all(
        without.map((kind) =>
          api.get(api.model("labels"), {
            params: { kind, blocked: false, limit: 200 },
            signal: control.signal,
          }),
        ),
      );
      const open = found.flatMap(({ labels }) => labels);
      open.sort(
        (a, b) =>
          Math.min(answers(a), 10) - Math.min(answers(b), 10) ||
          (a.quality_unseen ?? 2) - (b.quality_unseen ?? 2) ||
          b.count - a.count,
      );
      clear(unseen,
        open.length
          ? open
              .slice(0, 12)
              .map((one) =>
                card(
                  one,
                  answers(one) ? plural(answers(one), "answer") : plural(one.count, "tag set"),
                ),
              )
          : h("p.muted", "All of them are blocked."),
      );
    } catch (error) {
      if (!isAbort(error)) clear(unseen, failed(error, fill));
    }
  };
  const fillUncertain = async () => {
    try {
      const { questions } = await api.post(
        api.model("ask"),
        { label: null, k: 60, strategy: "active" },
        { signal: control.signal },
      );
      /** @type {Map<string, number>} */
      const nearest = new Map();
      for (const one of questions) {
        const known = nearest.get(one.label);
        if (known === undefined || Math.abs(one.probability - 0.5) < Math.abs(known - 0.5))
          nearest.set(one.label, one.probability);
      }
      const order = [...nearest]
        .sort((a, b) => Math.abs(a[1] - 0.5) - Math.abs(b[1] - 0.5))
        .slice(0, 12);
      clear(uncertain,
        order.length
          ? order.map(([label, p]) => card({ label }, `probability ${probabilityText(p)}`))
          : h("p.muted", "Nothing left to ask."),
      );
    } catch (error) {
      if (!isAbort(error)) clear(uncertain, failed(error, fillUncertain));
    }
  };
  fill();
  fillUncertain();
  return () => control.abort();
}

/* ------------------------------------------------------------------ the board */

/** @param {HTMLElement} stage @param {Context} context @param {Outbox} box @param {string} label */
export function byTag(stage, context, box, label) {
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
  const names = new Names();
  let current = 0;
  /** @type {{close: () => void, draw: () => void} | null} */
  let large = null;
  let turn = 0;

  const board = h("div.board", { role: "list", aria_label: `Items for ${label}` });
  const progress = h("div.progress", { role: "status" });
  const about = h("span.row");
  const means = h("p.muted.small");
  const more = h("div.row.center");
  const undoButton = h("button", { disabled: true, onclick: () => undo() }, icon("undo"), "Undo");
  const strategies = segments(
    "Which items",
    "strategy",
    STRATEGIES,
    settings.strategy,
    (value) => ((settings.strategy = value), load()),
  );
  add(stage,
    h("div.board-head",
      h("div.row",
        h("a.back", { href: "#/review" }, icon("back"), "All tags"),
        h("h2", label),
        about,
      ),
      h("div.row", strategies, means),
    ),
    h("div.board-status", progress, undoButton),
    board,
    more,
  );
  context.shortcuts([
    { keys: "← → ↑ ↓", does: "move between items" },
    { keys: "y", does: "yes, it carries the tag" },
    { keys: "n", does: "no" },
    { keys: "Space", does: "skip to the next open one" },
    { keys: "u", does: "undo" },
    { keys: "f Enter", does: "open large, and back" },
    { keys: "r", does: "sort the open ones again" },
  ]);

  api.get(api.model("labels", label), { signal: control.signal }).then(
    (card) => {
      clear(about,
        kindBadge(card.kind),
        h("a", { href: to("vocabulary", label) }, "In the vocabulary"),
      );
    },
    () => {},
  );

  const ask = (/** @type {number} */ k) =>
    box.reading(
      api.post(
        api.model("ask"),
        { label, k, strategy: settings.strategy },
        { signal: control.signal },
      ),
    );
  const isOpen = (/** @type {Entry} */ entry) => entry.answer === null;

  async function load() {
    turn += 1;
    const mine = turn;
    tiles.clear();
    entries = [];
    acts = [];
    given = [];
    current = 0;
    means.textContent = (STRATEGIES.find(([value]) => value === settings.strategy) ||
      STRATEGIES[0])[2];
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
        const [title, text] =
          settings.strategy === "errors"
            ? [
                `No “${label}” looks wrong`,
                "Wherever items have tags of their own and nobody has answered yet, the model and these tags agree.",
              ]
            : [
                `Nothing to ask about “${label}”`,
                "Every item was answered for, or carries the tag already.",
              ];
        clear(board, empty(title, text, h("a.button", { href: "#/review" }, "Choose another tag")));
      } else
        focus(
          0,
          document.activeElement === document.body ||
            document.activeElement === document.querySelector("main"),
        );
      drawProgress();
    } catch (error) {
      if (mine === turn && !isAbort(error)) clear(board, failed(error, load));
    }
  }

  /** @param {any[]} questions */
  function append(questions) {
    const known = new Set(entries.map((one) => one.item));
    names.add(questions.map((one) => one.item));
    for (const { draw } of tiles.values()) draw();
    for (const one of questions) {
      if (known.has(one.item)) continue;
      const entry = newEntry(one.item, one.label, {
        probability: one.probability,
        rank: one.rank,
        why: one.why,
      });
      entries.push(entry);
      const tile = makeTile(entry);
      tiles.set(entry, tile);
      board.append(tile.tile);
    }
    clear(more,
      entries.length > 0 && [
        h("button", { onclick: showMore }, "More items"),
        h("button", { onclick: sort }, "Sort the open ones again"),
      ],
    );
  }

  /** @param {Entry} entry */
  function makeTile(entry) {
    const at = () => entries.indexOf(entry);
    const name = h("span.tile-name", { title: entry.item });
    /**
     * By hand the page stays where it is, so that the next tap hits what was aimed at.
     * @param {boolean | null} said
     */
    const answerHere = (said) => {
      focus(at(), false);
      answer(entry, said, false);
    };
    const number = h("span.tile-number");
    const by = h("span.tile-by.muted.small");
    const reason = REASONS[entry.why];
    // To look is no answer: a picture opens, as in every photo program; yes and no have buttons.
    const face = h("button.tile-face",
      { tabindex: "-1", onclick: () => (focus(at(), false), enlarge()) },
      picture(context, entry.item, 256),
    );
    const yes = h("button.yes", {
        disabled: !may,
        tabindex: "-1",
        onclick: () => answerHere(entry.answer === true ? null : true),
      },
      icon("review"),
      "Yes",
    );
    const no = h("button.no", {
        disabled: !may,
        tabindex: "-1",
        onclick: () => answerHere(entry.answer === false ? null : false),
      },
      icon("close"),
      "No",
    );
    const tile = h("article.tile", {
        role: "listitem",
        tabindex: "-1",
        onfocus: () => focus(at(), false),
      },
      face,
      h("span.tile-mark", { aria_hidden: "true" }),
      h("div.tile-facts", name, number),
      reason && h("span.muted.small", reason),
      by,
      h("div.tile-buttons", no, yes),
    );
    const draw = () => {
      drawAnswer(entry, { frame: tile, yes, no, number, by });
      const words =
        entry.answer === null ? "not answered" : entry.answer ? "answered yes" : "answered no";
      name.textContent = names.of(entry.item);
      face.setAttribute("aria-label", `Open ${name.textContent}`);
      tile.setAttribute(
        "aria-label",
        `${name.textContent}, probability ${probabilityText(entry.probability)}, ${words}${entry.by ? ` ${entry.by}` : ""}`,
      );
    };
    draw();
    return { tile, draw };
  }

  /**
   * Make one tile the one that keys speak of.
   * @param {number} at
   * @param {boolean} [move] take the keyboard there
   * @param {boolean} [scroll]
   */
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

  /**
   * @param {Entry} entry
   * @param {boolean | null} said
   * @param {boolean} [scroll] to the next open one
   */
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
    const act = lastAct(acts);
    undoButton.disabled = !acts.length;
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
    const own = given.filter((one) => one.answer !== null && one.by === null);
    const yes = own.filter((one) => one.answer).length;
    const waits = box.waiting.length;
    clear(progress,
      h("span", h("strong", count(own.length)), " answered"),
      own.length > 0 && h("span", h("strong", percent(yes / own.length)), " yes"),
      own.length > 1 && sparkline(own.map((one) => Boolean(one.answer))),
      own.length > 0 && h("span.muted", waits ? `saving ${count(waits)}…` : "saved"),
    );
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
        entry.rank = now.rank;
        tiles.get(entry)?.draw();
      }
      if (open.length < 7)
        append(
          questions
            .filter((/** @type {any} */ one) => !entries.some((entry) => entry.item === one.item))
            .slice(0, 12),
        );
      large?.draw();
    } catch (error) {
      if (!isAbort(error) && mine === turn)
        context.toast(
          `The probabilities could not be brought up to date: ${/** @type {any} */ (error).message}`,
          { error: true },
        );
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
    const place = (/** @type {Entry} */ entry) =>
      settings.strategy === "errors" ? (entry.rank ?? Infinity) : -(entry.probability ?? 0);
    const open = entries.filter(isOpen).sort((a, b) => place(a) - place(b));
    entries = [...entries.filter((one) => !isOpen(one)), ...open];
    for (const entry of entries) board.append(/** @type {any} */ (tiles.get(entry)).tile);
    for (const { tile } of tiles.values()) enable(tile, false);
    focus(entries.length - open.length);
  }

  function enlarge() {
    if (large || !entries.length) return;
    const body = h("div.large", { tabindex: "-1", autofocus: true });
    let shown = "";
    const draw = () => {
      const entry = entries[current];
      const inside = body.contains(document.activeElement);
      if (shown !== entry.item) {
        shown = entry.item;
        const tags = h("p.muted");
        api.get(api.model("items", entry.item), { params: { k: 1 }, signal: control.signal }).then(
          (item) =>
            shown === entry.item &&
            clear(tags,
              item.tags.length ? `Own tags: ${item.tags.join(", ")}` : "No tags of its own",
            ),
          () => {},
        );
        clear(body,
          h("div.large-conflicts", { role: "alert" }),
          h("div.large-media", medium(context, entry.item)),
          h("p.small.break", entry.item),
          tags,
          h("p.large-says.strong"),
          h("div.row.center.large-buttons"),
        );
      }
      clear(/** @type {any} */ (body.querySelector(".large-conflicts")), conflictLines(box));
      /** @type {any} */ (body.querySelector(".large-says")).textContent =
        byWords(entry) || REASONS[entry.why] || "";
      const toggled = (/** @type {boolean} */ said) =>
        answer(entry, entry.answer === said ? null : said);
      clear(
        /** @type {any} */ (body.querySelector(".large-buttons")),
        iconButton("back", "Previous item", { onclick: () => focus(current - 1) }),
        h("button.no", {
            disabled: !may,
            aria_pressed: String(entry.answer === false),
            onclick: () => toggled(false),
          },
          icon("close"),
          "No",
        ),
        h("span.tile-number", probabilityText(entry.probability)),
        h("button.yes", {
            disabled: !may,
            aria_pressed: String(entry.answer === true),
            onclick: () => toggled(true),
          },
          icon("review"),
          "Yes",
        ),
        iconButton("next", "Next item", { onclick: () => focus(current + 1) }),
      );
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
    const key = keyOf(event, "input:not([type=radio]), textarea, select, [contenteditable]");
    if (!key || !entries.length || (document.querySelector("dialog[open]") && !large)) return;
    const onControl = target.closest("a, button, summary, input") !== null;
    const across = large ? 1 : columns(board);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[key];
    if (key === "u") undo();
    else if (key === "y" || key === "n") answer(entries[current], key === "y");
    else if (key === "f" || (key === "Enter" && !onControl)) large ? large.close() : enlarge();
    else if (key === "r" && !large) sort();
    else if (key === " " && !onControl) skip();
    else if (step && !target.closest("input")) focus(current + step);
    else return;
    event.preventDefault();
  };
  /** @param {boolean} saved */
  const onBox = (saved) => {
    for (const { draw } of tiles.values()) draw();
    drawProgress();
    undoButton.disabled = !acts.some(isOwn);
    large?.draw();
    if (saved) refresh();
  };
  document.addEventListener("keydown", onKey);
  box.listeners.add(onBox);
  box.find = (item, about) =>
    entries.find((one) => one.item === item && one.label.toLowerCase() === about.toLowerCase());
  load();
  return () => {
    turn += 1;
    control.abort();
    refresh.cancel();
    large?.close();
    document.removeEventListener("keydown", onKey);
    box.listeners.delete(onBox);
    box.find = () => undefined;
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
  const points = shares.map(
    (share, at) =>
      `${((at / (shares.length - 1)) * width).toFixed(1)},${(height - 2 - share * (height - 4)).toFixed(1)}`,
  );
  return s("svg.sparkline", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      aria_label: `Precision so far, answer by answer; now ${percent(shares[shares.length - 1])}`,
    },
    s("polyline", { points: points.join(" ") }),
  );
}
