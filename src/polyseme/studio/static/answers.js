// @ts-check
/**
 * Answers on their way to the service: none is lost, and none of others is overwritten unseen.
 *
 * In: what a person says about items and labels. Out: verdicts of the service; the answers that
 * others gave meanwhile, told to whoever listens.
 */

import { clear, debounce, h } from "./dom.js";
import { Problem } from "./api.js";
import { icon, probabilityText } from "./parts.js";

/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./app.js").Shortcut} Shortcut */
/** @typedef {import("./api.js").Verdict} Verdict */
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
 * @property {string | null} by who answered, where it was not done on this page: "by ann"
 * @property {number} shift how far the probability moved since it was first shown
 */
/** What was done on the page, to undo it. @typedef {{entry: Entry, before: boolean | null}} Act */
/**
 * An answer that was refused, since another one stands.
 * @typedef {{entry: Entry, answer: boolean, standing: Verdict}} Conflict
 */
/**
 * An answer that waits; `null` takes one back.
 * @typedef {object} Step
 * @property {Entry} entry
 * @property {boolean | null} answer
 * @property {number | null} score
 * @property {number | null} rank
 * @property {boolean} replaces whether the answer before was given elsewhere
 */
/**
 * The elements that show an entry.
 * @typedef {object} Parts
 * @property {HTMLElement} element around all of them
 * @property {HTMLElement} yes
 * @property {HTMLElement} no
 * @property {HTMLElement} number
 * @property {HTMLElement} byline
 */

const BATCH = 32; // answers in one request
const INTERVAL = 3000; // milliseconds between two looks for others' answers
const MOST_READ = 1000; // answers of others at one look
const REFRESH_DELAY = 300; // milliseconds after the last answer until probabilities are read again
const LEAST_SHIFT = 0.005; // of a probability, to be shown
const ELSEWHERE = "in another tab"; // who answered, where the service knows no names

/* ------------------------------------------------------------------ entries */

/**
 * Return a question that nobody has answered.
 * @param {string} item
 * @param {string} label
 * @param {Partial<Entry>} [fields]
 * @returns {Entry}
 */
export function newEntry(item, label, fields = {}) {
  return {
    item,
    label,
    probability: null,
    rank: null,
    why: "",
    answer: null,
    saved: null,
    number: null,
    by: null,
    shift: 0,
    ...fields,
  };
}

/** @param {boolean} answer */
const wordOf = (answer) => (answer ? "Yes" : "No");

/** @param {boolean} answer */
const iconOf = (answer) => icon(answer ? "review" : "close");

/**
 * Return who gave an answer.
 * @param {string | null} who
 * @param {string} unnamed where the service knows no names
 */
export const nameOf = (who, unnamed) => (who ? `by ${who}` : unnamed);

/** Return who answered what, where it was somebody else. @param {Entry} entry */
export function answerSentence({ answer, by }) {
  return answer !== null && by ? `${wordOf(answer)}, ${by}` : "";
}

/**
 * A button that says yes or no.
 * @param {boolean} answer
 * @param {Record<string, any>} props
 */
export function answerButton(answer, props) {
  const selector = answer ? "button.yes" : "button.no";
  return h(selector, props, iconOf(answer), h("span", wordOf(answer)));
}

/**
 * Show what was answered, whether the service has it, and how the probability moved.
 * @param {Entry} entry
 * @param {Parts} parts
 */
export function drawAnswer(entry, { element, yes, no, number, byline }) {
  const { answer, probability, shift } = entry;
  element.dataset.answer = answer === null ? "open" : wordOf(answer).toLowerCase();
  element.dataset.sending = String(answer !== entry.saved);
  yes.setAttribute("aria-pressed", String(answer === true));
  no.setAttribute("aria-pressed", String(answer === false));
  byline.textContent = answerSentence(entry);
  clear(number, probability !== null && probabilityText(probability));
  number.dataset.moved = "";
  if (answer !== null || Math.abs(shift) < LEAST_SHIFT) return;
  const rose = shift > 0;
  number.dataset.moved = rose ? "up" : "down";
  number.append(h("span", { aria_hidden: "true" }, rose ? " ▲" : " ▼"));
}

/**
 * Note the probability and the rank that an open question has now.
 * @param {Entry} entry
 * @param {number} probability
 * @param {number} rank from 1
 */
export function updateProbability(entry, probability, rank) {
  entry.shift += probability - (entry.probability ?? probability);
  entry.probability = probability;
  entry.rank = rank;
}

/* ------------------------------------------------------------------ pages of questions */

/**
 * Whether an act on this page can be undone: an answer of others since is theirs.
 * @param {{entry: Entry}} act
 */
export const isOwn = ({ entry }) => entry.by === null;

/**
 * A page on which questions are answered: what the board of a tag and the page of an item share.
 *
 * A page calls `listen` when it is composed. It defines what it shows (`drawEntry`, `drawEntries`),
 * reads probabilities again (`refresh`), finds the entry of an item and a label (`findEntry`), and
 * says what its keys do (`actionOf`).
 */
export class AnswerPage {
  /**
   * @param {Context} context
   * @param {Outbox} outbox
   * @param {string} controls a selector of what takes keys of its own
   */
  constructor(context, outbox, controls) {
    this.context = context;
    this.outbox = outbox;
    this.controls = controls;
    this.mayReview = context.can("review");
    /** Ends the page's requests when it is left. */
    this.control = new AbortController();
    /** What was done on this page, the latest last. @type {Act[]} */
    this.acts = [];
    this.refreshSoon = debounce(() => this.refresh(), REFRESH_DELAY);
    this.onKey = (/** @type {KeyboardEvent} */ event) => this.handleKey(event);
    this.onOutbox = (/** @type {boolean} */ isSaved) => this.drawAnswers(isSaved);
    this.undoButton = h("button", { disabled: true, onclick: () => this.undo() },
      icon("undo"),
      "Undo",
    );
  }

  /** Take keys, and answers that the outbox tells of. @param {Shortcut[]} shortcuts */
  listen(shortcuts) {
    const { context, outbox } = this;
    context.shortcuts(shortcuts);
    document.addEventListener("keydown", this.onKey);
    outbox.listeners.add(this.onOutbox);
    outbox.find = (item, label) => this.findEntry(item, label);
  }

  unmount() {
    this.control.abort();
    this.refreshSoon.cancel();
    document.removeEventListener("keydown", this.onKey);
    this.outbox.listeners.delete(this.onOutbox);
    this.outbox.find = () => undefined;
  }

  /* ---- what a page defines ---- */

  /** Read the probabilities of the open questions again. */
  async refresh() {}

  /**
   * Return the entry that an answer of others is about; nothing where the page does not show it.
   * @param {string} item
   * @param {string} label
   * @returns {Entry | undefined}
   */
  findEntry(item, label) {
    return undefined;
  }

  /** Show an entry whose answer has changed. @param {Entry} entry */
  drawEntry(entry) {}

  /** Show all entries: any of them may have changed. */
  drawEntries() {}

  /** Whether a dialog that is not the page's own takes the keys. */
  isBehindDialog() {
    return document.querySelector("dialog[open]") !== null;
  }

  /**
   * What a key does, if anything.
   * @param {string} key
   * @param {HTMLElement} target
   * @returns {(() => void) | undefined}
   */
  actionOf(key, target) {
    return undefined;
  }

  /* ---- answers ---- */

  /**
   * Answer a question; returns whether that changed anything.
   * @param {Entry} entry
   * @param {boolean | null} verdict null takes the answer back
   */
  answer(entry, verdict) {
    if (!this.mayReview || entry.answer === verdict) return false;
    this.acts.push({ entry, before: entry.answer });
    this.record(entry, verdict);
    return true;
  }

  /**
   * Send an answer and show it; unlike `answer`, nothing is noted for `undo`.
   * @param {Entry} entry
   * @param {boolean | null} verdict
   */
  record(entry, verdict) {
    this.outbox.put(entry, verdict);
    this.undoButton.disabled = !this.acts.length;
    this.drawEntry(entry);
  }

  /** Undo the latest act on this page; returns its entry. @returns {Entry | undefined} */
  undo() {
    let act = this.acts.pop();
    while (act && !isOwn(act)) act = this.acts.pop();
    this.undoButton.disabled = !this.acts.length;
    if (act) this.record(act.entry, act.before);
    return act?.entry;
  }

  /** Show what the outbox tells of. @param {boolean} isSaved whether something reached the service */
  drawAnswers(isSaved) {
    this.drawEntries();
    this.undoButton.disabled = !this.acts.some(isOwn);
    if (isSaved) this.refreshSoon();
  }

  /* ---- keys ---- */

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const key = keyOf(event, this.controls);
    if (!key || this.isBehindDialog()) return;
    const run = this.actionOf(key, /** @type {HTMLElement} */ (event.target));
    if (!run) return;
    run();
    event.preventDefault();
  }
}

/**
 * Return the key that was pressed, "u" for Ctrl-Z, too; nothing where it is meant for a control.
 * @param {KeyboardEvent} event
 * @param {string} controls a selector of what takes keys of its own
 */
function keyOf(event, controls) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.defaultPrevented || event.altKey || target.closest(controls)) return "";
  if (event.ctrlKey || event.metaKey) return event.key === "z" ? "u" : "";
  return event.key;
}

/* ------------------------------------------------------------------ the outbox */

/** Answers in order: sent at once, and kept until the service has them. */
export class Outbox {
  /**
   * @param {import("./api.js").Api} api
   * @param {any} model its JSON; the outbox outlives a change of model
   */
  constructor(api, model) {
    this.api = api;
    this.base = `models/${encodeURIComponent(model.id)}`;
    /** The last event that this page knows of. @type {number} */
    this.lastSeen = model.verdicts.last;
    /** Answers that were refused, until the person has decided. @type {Conflict[]} */
    this.conflicts = [];
    /**
     * The question on the page that an answer is about.
     * @type {(item: string, label: string) => Entry | undefined}
     */
    this.find = () => undefined;
    this.nSent = 0; // requests with answers so far
    /** Answers that the service does not have yet, in their order. @type {Step[]} */
    this.waiting = [];
    /** Why the first of them could not be sent. @type {any} */
    this.error = null;
    this.isBusy = false; // sending
    this.sendsSingly = false; // after a refusal of several at once, to find the refused one
    /**
     * Told of every change, and whether something reached the service.
     * @type {Set<(isSaved: boolean) => void>}
     */
    this.listeners = new Set();
    /** Told when others have answered. @type {Set<() => void>} */
    this.otherListeners = new Set();
  }

  /**
   * Take an answer, show it, and send it as soon as those before it are sent.
   * @param {Entry} entry
   * @param {boolean | null} answer null takes it back
   */
  put(entry, answer) {
    this.dropConflict(entry);
    const { probability: score, rank } = entry;
    this.waiting.push({ entry, answer, score, rank, replaces: entry.by !== null });
    entry.answer = answer;
    entry.by = null;
    this.send();
  }

  /** Send what waits; a failure stops it until the next answer or the next `send`. */
  async send() {
    if (this.isBusy) return;
    this.isBusy = true;
    this.error = null;
    this.notify();
    while (this.waiting.length && !this.error) {
      const steps = this.nextSteps();
      try {
        await this.deliver(steps);
        this.waiting.splice(0, steps.length);
        this.sendsSingly = false;
        this.notify(true);
      } catch (error) {
        await this.handleFailure(steps, error);
      }
    }
    this.isBusy = false;
    this.notify();
  }

  /** Return the steps for one request: answers to different questions that had none. */
  nextSteps() {
    const [first, ...others] = this.waiting;
    const steps = [first];
    if (this.sendsSingly || !isFirstAnswer(first)) return steps;
    for (const step of others) {
      const isRepeated = steps.some(({ entry }) => entry === step.entry);
      if (steps.length === BATCH || isRepeated || !isFirstAnswer(step)) break;
      steps.push(step);
    }
    return steps;
  }

  /** Send steps in one request; its failure is thrown. @param {Step[]} steps */
  async deliver(steps) {
    const [{ entry, answer, replaces }] = steps;
    this.nSent += 1;
    // An answer of this page is taken back; one of others stays on record, and a later one counts.
    const isOthers = replaces || entry.by !== null;
    if (entry.number !== null && (answer === null || !isOthers)) {
      await this.api.post(`${this.base}/undo`, { numbers: [entry.number] });
      entry.number = null;
      entry.saved = null;
    }
    if (answer === null) return;
    const seen = Math.max(this.lastSeen, ...steps.map((step) => step.entry.number ?? 0));
    const verdicts = steps.map(verdictOf);
    const { numbers } = await this.api.post(`${this.base}/learn`, { verdicts, seen });
    steps.forEach((step, i) => {
      step.entry.number = numbers[i];
      step.entry.saved = step.answer;
      step.entry.by = null;
    });
  }

  /**
   * Find out what to do about steps that could not be delivered; `error` is set where they stay.
   * @param {Step[]} steps
   * @param {unknown} error
   */
  async handleFailure(steps, error) {
    if (!(error instanceof Problem) || !error.isRefusal) {
      this.error = error;
    } else if (steps.length > 1) {
      this.sendsSingly = true; // to find the one that is refused
    } else if (await this.isSettled(steps[0], error)) {
      this.waiting.shift();
      this.notify(true);
    } else {
      this.error = error;
    }
  }

  /**
   * Whether a refused answer need not be sent again, since others have answered meanwhile: what
   * they said is shown, and the person decides.
   * @param {Step} step
   * @param {Problem} problem
   */
  async isSettled({ entry, answer }, problem) {
    const [standing] = problem.standing;
    if (standing && answer !== null) {
      adopt(entry, standing);
      this.conflicts.push({ entry, answer, standing });
      return true;
    }
    const { number } = entry;
    // The answer may have been taken back elsewhere.
    if (number !== null) await this.sync(entry).catch(() => {});
    return entry.number !== number;
  }

  /** Forget a conflict that is decided. @param {Entry} entry */
  dropConflict(entry) {
    this.conflicts = this.conflicts.filter((conflict) => conflict.entry !== entry);
  }

  /**
   * Bring the questions on the page up to what others have answered since.
   * @param {Entry} [also] although its answer waits
   */
  async sync(also) {
    const { nSent } = this;
    const params = { after: this.lastSeen, limit: MOST_READ };
    const { verdicts, last } = await this.api.get(`${this.base}/verdicts`, { params });
    // What was read while an answer was on its way may be older than the answer: read it next time.
    const isStale = nSent !== this.nSent || (this.isBusy && !also);
    if (last <= this.lastSeen || isStale) return;
    this.lastSeen = last;
    const changes = standingByQuestion(verdicts).map((change) => this.adoptChange(change, also));
    if (!changes.includes(true)) return;
    for (const listener of this.otherListeners) listener();
    this.notify(true);
  }

  /**
   * Show an answer that stands, unless one of this page waits; returns whether it is news.
   * @param {{item: string, label: string, standing: Verdict | null}} change
   * @param {Entry} [also] although its answer waits
   */
  adoptChange({ item, label, standing }, also) {
    const entry = this.find(item, label);
    if (!entry) return true;
    if (entry.number === (standing?.number ?? null)) return false; // said on this page
    const isWaiting = this.waiting.some((step) => step.entry === entry);
    if (entry === also || !isWaiting) adopt(entry, standing);
    return true;
  }

  /**
   * Wait for what is read about questions. What others answer meanwhile is looked at again, since
   * it may be newer than what was read.
   * @template T
   * @param {Promise<T>} request
   * @returns {Promise<T>}
   */
  async read(request) {
    const { lastSeen } = this;
    const result = await request;
    this.lastSeen = Math.min(this.lastSeen, lastSeen);
    return result;
  }

  /** Look for others' answers when the page comes to the front, and every few seconds there. */
  follow() {
    let isEnded = false;
    let isLooking = false;
    let timer = 0;
    const look = async () => {
      if (isLooking || isEnded) return;
      isLooking = true;
      clearTimeout(timer);
      // Without an answer the page stays as it is; what the person does tells of the trouble.
      if (document.visibilityState === "visible") await this.sync().catch(() => {});
      isLooking = false;
      if (!isEnded) timer = window.setTimeout(look, INTERVAL);
    };
    window.addEventListener("focus", look);
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      isEnded = true;
      clearTimeout(timer);
      window.removeEventListener("focus", look);
      document.removeEventListener("visibilitychange", look);
    };
  }

  /** Give up what could not be sent; questions are as the service knows them. */
  discard() {
    for (const { entry } of this.waiting) entry.answer = entry.saved;
    this.waiting = [];
    this.error = null;
    this.sendsSingly = false;
    this.notify(true);
  }

  /** @param {boolean} [isSaved] whether something reached the service, or was given up */
  notify(isSaved = false) {
    for (const listener of this.listeners) listener(isSaved);
  }
}

/** Whether a step answers a question that the service has no answer to. @param {Step} step */
const isFirstAnswer = ({ entry, answer }) => answer !== null && entry.number === null;

/** Return a step as the service takes answers. @param {Step} step */
const verdictOf = ({ entry, answer, score, rank }) => ({
  item: entry.item,
  label: entry.label,
  answer,
  score,
  rank,
});

/**
 * Return what stands by now for each question that was answered or taken back.
 * @param {Verdict[]} verdicts
 * @returns {{item: string, label: string, standing: Verdict | null}[]}
 */
function standingByQuestion(verdicts) {
  /** @type {Map<string, {item: string, label: string, standing: Verdict | null}>} */
  const changes = new Map();
  for (const verdict of verdicts) {
    const { item, label } = verdict;
    const question = JSON.stringify([item, label]);
    const stands = !verdict.undone && !verdict.superseded;
    if (stands) changes.set(question, { item, label, standing: verdict });
    else if (!changes.has(question)) changes.set(question, { item, label, standing: null });
  }
  return [...changes.values()];
}

/**
 * Give a question the answer that stands, which was not given on this page.
 * @param {Entry} entry
 * @param {Verdict | null} standing
 */
function adopt(entry, standing) {
  entry.answer = standing ? standing.answer : null;
  entry.saved = entry.answer;
  entry.number = standing ? standing.number : null;
  entry.by = standing ? nameOf(standing.who, ELSEWHERE) : null;
}

/**
 * Return a line for each answer that was refused, and what can be done about it.
 * @param {Outbox} outbox
 */
export function conflictLines(outbox) {
  return outbox.conflicts.map((conflict) => conflictLine(outbox, conflict));
}

/**
 * A refused answer: give it all the same, or leave the one that stands.
 * @param {Outbox} outbox
 * @param {Conflict} conflict
 */
function conflictLine(outbox, { entry, answer, standing }) {
  const leave = () => {
    outbox.dropConflict(entry);
    outbox.notify();
  };
  return h("div.notice.conflict",
    h("p.break",
      h("strong", entry.label),
      ` for ${entry.item}: answered `,
      h("strong", wordOf(standing.answer)),
      ` ${nameOf(standing.who, ELSEWHERE)} meanwhile.`,
    ),
    h("div.row",
      h("button", { onclick: () => outbox.put(entry, answer) },
        iconOf(answer),
        `${wordOf(answer)} all the same`,
      ),
      h("button.quiet", { onclick: leave }, `Leave ${wordOf(standing.answer)}`),
    ),
  );
}

/** One outbox for each model, for as long as the page is open. @type {Map<string, Outbox>} */
const outboxes = new Map();

window.addEventListener("beforeunload", (event) => {
  const isWaiting = [...outboxes.values()].some((outbox) => outbox.waiting.length);
  if (isWaiting) event.preventDefault();
});

/** Return the outbox of the model in use. @param {Context} context @returns {Outbox} */
export function outboxOf({ api, model, toast }) {
  const former = outboxes.get(model.id);
  if (former) return former;
  const outbox = new Outbox(api, model);
  let wasReported = false;
  // While a view listens it shows the trouble itself.
  const report = () => {
    const { error } = outbox;
    const isAlone = outbox.listeners.size === 1;
    if (error && isAlone && !wasReported) {
      toast(`An answer was not saved: ${error.message}`, { error: true });
    }
    wasReported = Boolean(error);
  };
  outbox.listeners.add(report);
  outboxes.set(model.id, outbox);
  return outbox;
}
