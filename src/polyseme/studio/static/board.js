// @ts-check
/**
 * Review by tag: a board of the items that may carry the tag.
 *
 * In: the questions of the service. Out: answers, put into the outbox; refused ones stay visible.
 */

import { add, clear, h, s } from "./dom.js";
import { isAbort } from "./api.js";
import {
  AnswerPage,
  answerButton,
  answerSentence,
  conflictLines,
  drawAnswer,
  isOwn,
  newEntry,
  updateProbability,
} from "./answers.js";
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
  probabilityText,
  segments,
} from "./parts.js";
import { hashOf } from "./cards.js";
import { Names, breakable, medium, picture, scrollsText } from "./items.js";

/** @typedef {import("./api.js").Question} Question */
/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./answers.js").Entry} Entry */
/** @typedef {import("./answers.js").Outbox} Outbox */

/** How the questions are chosen: strategy, name, meaning. */
const STRATEGIES = [
  ["likeliest", "Likeliest", "The items that most probably carry the tag come first."],
  [
    "active",
    "Most telling",
    "Half are the likeliest items, half those the model is least certain of. It learns most from these.",
  ],
  [
    "errors",
    "Errors",
    "Items on which the model and their own tags disagree: the tag is doubtful, or perhaps missing.",
  ],
];

/** Why the service asks about an item. @type {Record<string, string>} */
const REASONS = {
  uncertain: "uncertain",
  missing: "perhaps missing",
  doubtful: "has it, doubtful",
};

const PAGE = 24; // questions at a time
const ADDED = 12; // questions that are added at once where few are open
const LEAST_REFRESHED = 60; // so many of these at the least, however few are on the page
const MOST_QUESTIONS = 500; // in one request
const MOST_REFRESHED = 300; // questions whose probabilities are read again after an answer
const FEW_OPEN = 7; // with fewer open questions, further ones are added
const KEYS = [
  { keys: "← → ↑ ↓", does: "move between items" },
  { keys: "y", does: "yes, it carries the tag" },
  { keys: "n", does: "no" },
  { keys: "Space", does: "skip to the next open one" },
  { keys: "u", does: "undo" },
  { keys: "f Enter", does: "open large, and back" },
  { keys: "r", does: "sort the open ones again" },
];

/**
 * Show the board of a tag; returns what unmounts it.
 * @param {HTMLElement} stage
 * @param {Context} context
 * @param {Outbox} outbox
 * @param {string} label
 */
export function showBoard(stage, context, outbox, label) {
  const board = new Board(stage, context, outbox, label);
  board.load();
  return () => board.unmount();
}

/** @param {Entry} entry */
const isOpen = (entry) => entry.answer === null;

class Board extends AnswerPage {
  /**
   * @param {HTMLElement} stage
   * @param {Context} context
   * @param {Outbox} outbox
   * @param {string} label
   */
  constructor(stage, context, outbox, label) {
    super(context, outbox, "input:not([type=radio]), textarea, select, [contenteditable]");
    this.label = label;
    /** The strategy, kept from tag to tag. */
    this.settings = context.state.review ??= { strategy: "likeliest" };
    /** In the order of the tiles. @type {Entry[]} */
    this.entries = [];
    /** @type {Map<Entry, Tile>} */
    this.tiles = new Map();
    /** Entries in the order of their answers, for the sparkline. @type {Entry[]} */
    this.answered = [];
    this.names = new Names();
    this.current = 0; // index of the entry that the keys act on
    /** @type {LargeView | null} */
    this.large = null;
    this.turn = 0; // of loading; a response to an earlier request is dropped

    this.grid = h("div.board", { role: "list", aria_label: `Items for ${label}` });
    this.progress = h("div.progress", { role: "status" });
    this.labelLinks = h("span.row");
    this.strategyHelp = h("p.muted.small");
    this.moreButtons = h("div.row.center");
    this.compose(stage);
    this.loadLinks();
    this.listen(KEYS);
  }

  unmount() {
    this.turn += 1;
    this.large?.close();
    super.unmount();
  }

  /** @param {HTMLElement} stage */
  compose(stage) {
    const { strategy } = this.settings;
    const choose = (/** @type {string} */ name) => this.chooseStrategy(name);
    add(stage,
      h("div.board-head",
        h("div.row",
          h("a.back", { href: "#/review" }, icon("back"), "All tags"),
          h("h2", this.label),
          this.labelLinks,
        ),
        h("div.row",
          segments("Which items", "strategy", STRATEGIES, strategy, choose),
          this.strategyHelp,
        ),
      ),
      h("div.board-status", this.progress, this.undoButton),
      this.grid,
      this.moreButtons,
    );
  }

  /** Show the kind of the tag; without an answer of the service the board does without. */
  async loadLinks() {
    const { api } = this.context;
    const { signal } = this.control;
    try {
      const card = await api.get(api.model("labels", this.label), { signal });
      const link = h("a", { href: hashOf("vocabulary", this.label) }, "In the vocabulary");
      clear(this.labelLinks, kindBadge(card.kind), link);
    } catch {
      // The questions themselves say what is wrong.
    }
  }

  /** @param {string} strategy */
  chooseStrategy(strategy) {
    this.settings.strategy = strategy;
    this.load();
  }

  /**
   * @param {string} item
   * @param {string} label
   */
  findEntry(item, label) {
    const name = label.toLowerCase();
    return this.entries.find((entry) => entry.item === item && entry.label.toLowerCase() === name);
  }

  /* ---- questions ---- */

  /** Ask the service which items to ask about. @param {number} k @returns {Promise<Question[]>} */
  async ask(k) {
    const { api } = this.context;
    const body = { label: this.label, k, strategy: this.settings.strategy };
    const request = api.post(api.model("ask"), body, { signal: this.control.signal });
    const { questions } = await this.outbox.read(request);
    return questions;
  }

  /** Ask the first questions of the tag, and forget those before. */
  async load() {
    this.turn += 1;
    const { turn } = this;
    this.reset();
    clear(this.grid, loading("Ranking the items…"));
    try {
      const questions = await this.ask(PAGE);
      if (turn !== this.turn) return;
      this.showQuestions(questions);
    } catch (error) {
      if (turn !== this.turn || isAbort(error)) return;
      clear(this.grid,
        failed(error, () => this.load()),
      );
    }
  }

  /** Forget the questions and answers of this page. */
  reset() {
    const { strategy } = this.settings;
    const [, , help] = STRATEGIES.find(([name]) => name === strategy) || STRATEGIES[0];
    this.strategyHelp.textContent = help;
    this.tiles.clear();
    this.entries = [];
    this.acts = [];
    this.answered = [];
    this.current = 0;
    this.undoButton.disabled = true;
    clear(this.moreButtons);
    clear(this.progress);
  }

  /**
   * Show the first questions, and put the focus on the first one where it is nowhere else.
   * @param {Question[]} questions the first ones
   */
  showQuestions(questions) {
    clear(this.grid);
    this.append(questions);
    if (this.entries.length) {
      const focused = document.activeElement;
      const isIdle = focused === document.body || focused === document.querySelector("main");
      this.focus(0, { takesFocus: isIdle });
    } else {
      clear(this.grid, this.noQuestions());
    }
    this.drawProgress();
  }

  noQuestions() {
    const { label } = this;
    const back = h("a.button", { href: "#/review" }, "Choose another tag");
    if (this.settings.strategy === "errors") {
      const text = "The model agrees with the tags of all items that nobody has answered for yet.";
      return empty(`No “${label}” looks wrong`, text, back);
    }
    const text = "All items carry the tag already or have an answer.";
    return empty(`Nothing to ask about “${label}”`, text, back);
  }

  /** Add tiles for the questions about items that have none. @param {Question[]} questions */
  append(questions) {
    const shownItems = new Set(this.entries.map((entry) => entry.item));
    this.names.add(questions.map((question) => question.item));
    for (const tile of this.tiles.values()) tile.draw(); // its name may need its folder now
    for (const { item, label, probability, rank, why } of questions) {
      if (shownItems.has(item)) continue;
      const entry = newEntry(item, label, { probability, rank, why });
      const tile = new Tile(this, entry);
      this.entries.push(entry);
      this.tiles.set(entry, tile);
      this.grid.append(tile.element);
    }
    clear(this.moreButtons,
      this.entries.length > 0 && [
        h("button", { onclick: () => this.showMore() }, "More items"),
        h("button", { onclick: () => this.sort() }, "Sort the open ones again"),
      ],
    );
  }

  /** Ask for further questions; the answered ones are no longer among them. */
  async showMore() {
    const countBefore = this.entries.length;
    const nOpen = this.entries.filter(isOpen).length;
    try {
      this.append(await this.ask(Math.min(MOST_QUESTIONS, nOpen + PAGE)));
    } catch (error) {
      if (!isAbort(error)) this.complain(/** @type {Error} */ (error).message);
      return;
    }
    if (this.entries.length > countBefore) this.focus(countBefore);
    else this.context.toast("There are no further items to ask about.");
  }

  /** Read the probabilities of the open questions again. */
  async refresh() {
    const { turn } = this;
    const openEntries = this.entries.filter(isOpen);
    const k = Math.min(MOST_REFRESHED, Math.max(LEAST_REFRESHED, openEntries.length * 3));
    try {
      const questions = await this.ask(k);
      if (turn !== this.turn) return;
      this.updateEntries(openEntries, questions);
      const newQuestions = this.newQuestions(questions);
      if (openEntries.length < FEW_OPEN) this.append(newQuestions.slice(0, ADDED));
      this.large?.draw();
    } catch (error) {
      if (isAbort(error) || turn !== this.turn) return;
      const { message } = /** @type {Error} */ (error);
      this.complain(`The probabilities could not be updated: ${message}`);
    }
  }

  /**
   * Show the probabilities that open questions have now.
   * @param {Entry[]} entries
   * @param {Question[]} questions
   */
  updateEntries(entries, questions) {
    const questionByItem = new Map(questions.map((question) => [question.item, question]));
    for (const entry of entries) {
      const question = questionByItem.get(entry.item);
      if (!question || !isOpen(entry)) continue; // answered while the service was asked
      updateProbability(entry, question.probability, question.rank);
      this.tiles.get(entry)?.draw();
    }
  }

  /** Return the questions about items that are not shown yet. @param {Question[]} questions */
  newQuestions(questions) {
    const shownItems = new Set(this.entries.map((entry) => entry.item));
    return questions.filter((question) => !shownItems.has(question.item));
  }

  /** Answered entries stay where they are; the open ones follow in the current order. */
  sort() {
    const isErrors = this.settings.strategy === "errors";
    const sortKey = (/** @type {Entry} */ entry) =>
      isErrors ? (entry.rank ?? Infinity) : -(entry.probability ?? 0);
    const openEntries = this.entries.filter(isOpen).sort((a, b) => sortKey(a) - sortKey(b));
    const closedEntries = this.entries.filter((entry) => !isOpen(entry));
    this.entries = [...closedEntries, ...openEntries];
    for (const entry of this.entries) this.grid.append(this.tileOf(entry).element);
    for (const tile of this.tiles.values()) tile.setCurrent(false);
    this.focus(closedEntries.length);
  }

  /** @param {Entry} entry */
  tileOf(entry) {
    return /** @type {Tile} */ (this.tiles.get(entry));
  }

  /** @param {string} message */
  complain(message) {
    this.context.toast(message, { error: true });
  }

  /* ---- answers ---- */

  /**
   * Answer a question, and go on to the next open one.
   * @param {Entry} entry
   * @param {boolean | null} verdict null takes the answer back
   * @param {{scrolls?: boolean}} [options] whether the page scrolls to the next open item
   */
  answer(entry, verdict, { scrolls = true } = {}) {
    const isChanged = super.answer(entry, verdict);
    if (isChanged && verdict !== null) this.skip(scrolls);
    return isChanged;
  }

  /**
   * Give an answer, or take it back where it is the one that stands.
   * @param {Entry} entry
   * @param {boolean} verdict
   * @param {{scrolls?: boolean}} [options]
   */
  toggle(entry, verdict, options) {
    this.answer(entry, entry.answer === verdict ? null : verdict, options);
  }

  /**
   * @param {Entry} entry
   * @param {boolean | null} verdict
   */
  record(entry, verdict) {
    this.answered = this.answered.filter((other) => other !== entry);
    if (verdict !== null) this.answered.push(entry);
    super.record(entry, verdict);
  }

  undo() {
    const entry = super.undo();
    if (entry) this.focus(this.entries.indexOf(entry));
    return entry;
  }

  /** @param {Entry} entry */
  drawEntry(entry) {
    this.tiles.get(entry)?.draw();
    this.drawProgress();
    this.large?.draw();
  }

  drawEntries() {
    for (const tile of this.tiles.values()) tile.draw();
    this.drawProgress();
    this.large?.draw();
  }

  /** Show how many were answered on this page, and which share of yes. */
  drawProgress() {
    const ownAnswers = this.answered.filter((entry) => entry.answer !== null && isOwn({ entry }));
    const verdicts = ownAnswers.map((entry) => Boolean(entry.answer));
    const nYes = verdicts.filter(Boolean).length;
    const nWaiting = this.outbox.waiting.length;
    const state = nWaiting ? `saving ${count(nWaiting)}…` : "saved";
    clear(this.progress,
      h("span", h("strong", count(verdicts.length)), " answered"),
      verdicts.length > 0 && h("span", h("strong", percent(nYes / verdicts.length)), " yes"),
      verdicts.length > 1 && sparkline(verdicts),
      verdicts.length > 0 && h("span.muted", state),
    );
  }

  /* ---- focus and keys ---- */

  /**
   * Make an item the current one, which the keys act on.
   * @param {number} index
   * @param {{takesFocus?: boolean, scrolls?: boolean}} [options]
   */
  focus(index, { takesFocus = true, scrolls = true } = {}) {
    this.tiles.get(this.entries[this.current])?.setCurrent(false);
    this.current = Math.max(0, Math.min(this.entries.length - 1, index));
    const tile = this.tiles.get(this.entries[this.current]);
    if (!tile) return;
    tile.setCurrent(true);
    if (takesFocus && !this.large) {
      tile.element.focus({ preventScroll: true });
      if (scrolls) tile.element.scrollIntoView({ block: "nearest" });
    }
    this.large?.draw();
  }

  /** Go to the next open item, from here or else from the start. @param {boolean} [scrolls] */
  skip(scrolls = true) {
    const n = this.entries.length;
    for (let step = 1; step <= n; step += 1) {
      const index = (this.current + step) % n;
      if (isOpen(this.entries[index])) return this.focus(index, { scrolls });
    }
    if (n) this.focus(this.current, { scrolls });
  }

  enlarge() {
    if (this.large || !this.entries.length) return;
    this.large = new LargeView(this);
    this.large.open().then(() => {
      this.large = null;
      this.focus(this.current);
    });
    this.large.draw();
  }

  /** The large view is a dialog of the board's own. */
  isBehindDialog() {
    return !this.large && super.isBehindDialog();
  }

  /**
   * What a key does, if anything.
   * @param {string} key
   * @param {HTMLElement} target
   * @returns {(() => void) | undefined}
   */
  actionOf(key, target) {
    if (!this.entries.length) return undefined;
    const entry = this.entries[this.current];
    const isControl = target.closest("a, button, summary, input") !== null;
    const nColumns = this.large ? 1 : countColumns(this.grid);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: nColumns, ArrowUp: -nColumns }[key];
    if (scrollsText(key, target)) return undefined;
    if (key === "u") return () => this.undo();
    if (key === "y" || key === "n") return () => this.answer(entry, key === "y");
    if (key === "f" || (key === "Enter" && !isControl)) return () => this.toggleLarge();
    if (key === "r" && !this.large) return () => this.sort();
    if (key === " " && !isControl) return () => this.skip();
    if (step && !target.closest("input")) return () => this.focus(this.current + step);
  }

  toggleLarge() {
    if (this.large) this.large.close();
    else this.enlarge();
  }
}

/** An item on the board: its picture, its probability, and what is answered. */
class Tile {
  /**
   * @param {Board} board
   * @param {Entry} entry
   */
  constructor(board, entry) {
    this.board = board;
    this.entry = entry;
    const disabled = !board.mayReview;
    const reason = REASONS[entry.why];
    this.name = h("span.tile-name", { title: entry.item });
    this.number = h("span.tile-number");
    this.byline = h("span.tile-by.muted.small");
    this.yes = answerButton(true, { disabled, tabindex: "-1", onclick: () => this.toggle(true) });
    this.no = answerButton(false, { disabled, tabindex: "-1", onclick: () => this.toggle(false) });
    // To look is no answer: a picture opens, as in every photo program; yes and no have buttons.
    this.face = h("button.tile-face", { tabindex: "-1", onclick: () => this.open() },
      picture(board.context, entry.item, 256),
    );
    this.element = h("article.tile",
      { role: "listitem", tabindex: "-1", onfocus: () => this.select() },
      this.face,
      h("span.tile-mark", { aria_hidden: "true" }),
      h("div.tile-facts", this.name, this.number),
      reason && h("span.muted.small", reason),
      this.byline,
      h("div.tile-buttons", this.no, this.yes),
    );
    this.draw();
  }

  /** Make this the current item; the page stays where it is, so that the next tap hits. */
  select() {
    const index = this.board.entries.indexOf(this.entry);
    this.board.focus(index, { takesFocus: false });
  }

  open() {
    this.select();
    this.board.enlarge();
  }

  /** @param {boolean} verdict */
  toggle(verdict) {
    this.select();
    this.board.toggle(this.entry, verdict, { scrolls: false });
  }

  /** @param {boolean} isCurrent */
  setCurrent(isCurrent) {
    const tabIndex = isCurrent ? 0 : -1;
    this.element.tabIndex = tabIndex;
    this.element.classList.toggle("current", isCurrent);
    for (const button of this.element.querySelectorAll("button")) button.tabIndex = tabIndex;
  }

  draw() {
    const { entry } = this;
    drawAnswer(entry, this);
    const name = this.board.names.of(entry.item);
    const facts = [name, `probability ${probabilityText(entry.probability)}`, this.state()];
    clear(this.name, breakable(name));
    this.face.setAttribute("aria-label", `Open ${name}`);
    this.element.setAttribute("aria-label", facts.join(", "));
  }

  /** What is answered, for a screen reader. */
  state() {
    const { answer, by } = this.entry;
    if (answer === null) return "not answered";
    const words = answer ? "answered yes" : "answered no";
    return by ? `${words} ${by}` : words;
  }
}

/** The current item of a board in a dialog of its own. */
class LargeView {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.shownItem = "";
    this.close = () => {};
    this.body = h("div.large", { tabindex: "-1", autofocus: true });
    this.conflicts = h("div.large-conflicts", { role: "alert" });
    this.note = h("p.large-says.strong");
    this.buttons = h("div.row.center.large-buttons");
  }

  /** @returns {Promise<void>} until it is closed */
  open() {
    return dialog(this.board.label, (close) => {
      this.close = close;
      return this.body;
    });
  }

  draw() {
    const { board } = this;
    const entry = board.entries[board.current];
    const hadFocus = this.body.contains(document.activeElement);
    if (this.shownItem !== entry.item) this.drawItem(entry.item);
    clear(this.conflicts, conflictLines(board.outbox));
    this.note.textContent = answerSentence(entry) || REASONS[entry.why] || "";
    clear(this.buttons,
      iconButton("back", "Previous item", { onclick: () => board.focus(board.current - 1) }),
      this.answerButton(entry, false),
      h("span.tile-number", probabilityText(entry.probability)),
      this.answerButton(entry, true),
      iconButton("next", "Next item", { onclick: () => board.focus(board.current + 1) }),
    );
    if (hadFocus) this.body.focus();
  }

  /** Show the picture, sound or text of an item, and its tags. @param {string} item */
  drawItem(item) {
    this.shownItem = item;
    const tags = h("p.muted");
    this.loadTags(item, tags);
    clear(this.body,
      this.conflicts,
      h("div.large-media", medium(this.board.context, item)),
      h("p.small.break", item),
      tags,
      this.note,
      this.buttons,
    );
  }

  /**
   * @param {string} item
   * @param {HTMLElement} line
   */
  async loadTags(item, line) {
    const { context, control } = this.board;
    const { api } = context;
    const options = { params: { k: 1 }, signal: control.signal };
    try {
      const { tags } = await api.get(api.model("items", item), options);
      clear(line, tags.length ? `Own tags: ${tags.join(", ")}` : "No tags of its own");
    } catch {
      // The item is shown without its tags.
    }
  }

  /**
   * @param {Entry} entry
   * @param {boolean} verdict
   */
  answerButton(entry, verdict) {
    return answerButton(verdict, {
      disabled: !this.board.mayReview,
      aria_pressed: String(entry.answer === verdict),
      onclick: () => this.board.toggle(entry, verdict),
    });
  }
}

/** Return how many tiles stand side by side. @param {HTMLElement} grid */
function countColumns(grid) {
  const tiles = /** @type {HTMLElement[]} */ ([...grid.children]);
  const nextRow = tiles.findIndex((tile) => tile.offsetTop > tiles[0].offsetTop);
  return nextRow > 0 ? nextRow : Math.max(1, tiles.length);
}

/** Draw the share of yes so far, answer by answer. @param {boolean[]} verdicts */
function sparkline(verdicts) {
  const width = 96; // of the drawing, in its own units
  const height = 24;
  const margin = 2; // above and below the line
  let nYes = 0;
  let share = 0;
  const points = verdicts.map((isYes, i) => {
    nYes += Number(isYes);
    share = nYes / (i + 1);
    const x = (i / (verdicts.length - 1)) * width;
    const y = height - margin - share * (height - 2 * margin);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  const name = `Precision so far, answer by answer; now ${percent(share)}`;
  return s("svg.sparkline", { viewBox: `0 0 ${width} ${height}`, role: "img", aria_label: name },
    s("polyline", { points: points.join(" ") }),
  );
}
