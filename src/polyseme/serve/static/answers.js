// @ts-check
/**
 * Answers on their way to the service.
 *
 * In: yes, no, or an answer taken back. Out: verdicts, sent one after the other in the order they
 * were given; what could not be sent is kept and shown until it is. What others answer meanwhile
 * comes back to the questions on the page, and is not overwritten unseen.
 */

import { clear, h } from "./dom.js";
import { Problem } from "./api.js";
import { icon, probabilityText } from "./parts.js";

/** @typedef {import("./app.js").Context} Context */
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
 * @property {number} shift how far the probability moved last
 */
/**
 * An answer that stands, as the service has it.
 * @typedef {{item: string, label: string, answer: boolean, who: string | null, number: number}} Standing
 */
/**
 * An answer that was refused, since another one stands.
 * @typedef {{entry: Entry, answer: boolean, standing: Standing}} Conflict
 */
/**
 * `replaces`: whether the answer before was not given on this page.
 * @typedef {{entry: Entry, answer: boolean | null, score: number | null, rank: number | null, replaces: boolean}} Step
 */

const BATCH = 32; // answers in one request
const EVERY = 3000; // milliseconds between two looks for others' answers
const MOST_READ = 1000; // answers of others at one look

/**
 * A question that nobody has answered.
 * @param {string} item
 * @param {string} label
 * @param {Partial<Entry>} [known]
 * @returns {Entry}
 */
export function newEntry(item, label, known = {}) {
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
    ...known,
  };
}

/**
 * Show what was answered, whether the service has it, and how the probability moved.
 * @param {Entry} entry @param {{frame: HTMLElement, yes: HTMLElement, no: HTMLElement, number: HTMLElement, by: HTMLElement}} parts
 */
export function drawAnswer(entry, { frame, yes, no, number, by }) {
  frame.dataset.answer = entry.answer === null ? "open" : entry.answer ? "yes" : "no";
  frame.dataset.sending = String(entry.answer !== entry.saved);
  yes.setAttribute("aria-pressed", String(entry.answer === true));
  no.setAttribute("aria-pressed", String(entry.answer === false));
  by.textContent = byWords(entry);
  const moved = Math.abs(entry.shift) >= 0.005 && entry.answer === null;
  number.dataset.moved = moved ? (entry.shift > 0 ? "up" : "down") : "";
  clear(number,
    entry.probability !== null && probabilityText(entry.probability),
    moved && h("span", { aria_hidden: "true" }, entry.shift > 0 ? " ▲" : " ▼"),
  );
}

const word = (/** @type {boolean} */ answer) => (answer ? "Yes" : "No");

/** Who answered, where it was somebody else. @param {Entry} entry */
export function byWords({ answer, by }) {
  return answer !== null && by ? `${word(answer)}, ${by}` : "";
}

/**
 * Who gave an answer that the service has.
 * @param {{who: string | null}} standing
 * @param {string} unnamed
 */
export const byWhom = ({ who }, unnamed) => (who ? `by ${who}` : unnamed);

/**
 * Whether what was done on this page can be undone: an answer of others since is theirs.
 * @param {{entry: Entry}} act
 */
export const isOwn = (act) => act.entry.by === null;

/**
 * The latest thing that was done on this page and can be undone.
 * @template {{entry: Entry}} Act @param {Act[]} acts @returns {Act | undefined}
 */
export function lastAct(acts) {
  let act = acts.pop();
  while (act && !isOwn(act)) act = acts.pop();
  return act;
}

/**
 * The key that was pressed, "u" for Ctrl-Z, too; nothing where it is meant for something else.
 * @param {KeyboardEvent} event
 * @param {string} others what takes keys of its own
 */
export function keyOf(event, others) {
  if (
    event.defaultPrevented ||
    event.altKey ||
    /** @type {HTMLElement} */ (event.target).closest(others)
  )
    return "";
  if (event.ctrlKey || event.metaKey) return event.key === "z" ? "u" : "";
  return event.key;
}

/** Answers in order: sent at once, and kept until the service has them. */
export class Outbox {
  /**
   * @param {import("./api.js").Api} api
   * @param {any} model its JSON; the box outlives a change of model
   */
  constructor(api, model) {
    this.api = api;
    this.base = `models/${encodeURIComponent(model.id)}`;
    /** The last event that this page knows of. @type {number} */
    this.seen = model.verdicts.last;
    /** Answers that were refused, until the person has decided. @type {Conflict[]} */
    this.conflicts = [];
    /**
     * The question on the page that an answer is about.
     * @type {(item: string, label: string) => Entry | undefined}
     */
    this.find = () => undefined;
    this.sent = 0;
    /** @type {Step[]} */
    this.waiting = [];
    /** @type {any} */
    this.error = null;
    this.busy = false;
    this.single = false;
    /**
     * Told of every change, and whether something reached the service.
     * @type {Set<(saved: boolean) => void>}
     */
    this.listeners = new Set();
    /** Told where others have answered. @type {Set<() => void>} */
    this.others = new Set();
  }

  /** @param {Entry} entry @param {boolean | null} answer null takes it back */
  put(entry, answer) {
    this.settle(entry);
    this.waiting.push({
      entry,
      answer,
      score: entry.probability,
      rank: entry.rank,
      replaces: entry.by !== null,
    });
    entry.answer = answer;
    entry.by = null;
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
        await this.deliver(steps);
        this.waiting.splice(0, steps.length);
        this.single = false;
        this.tell(true);
      } catch (error) {
        const refused = error instanceof Problem && error.status >= 400 && error.status < 500;
        if (refused && steps.length > 1) {
          this.single = true; // find the one that is refused
          continue;
        }
        if (refused && (await this.giveWay(steps[0], error))) {
          this.waiting.shift();
          this.tell(true);
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
    const [{ entry, answer, replaces }] = steps;
    this.sent += 1;
    // An answer of this page is taken back; one of others stays on record, and a later one counts.
    if (entry.number !== null && (answer === null || !(replaces || entry.by !== null))) {
      await this.api.post(`${this.base}/undo`, { numbers: [entry.number] });
      entry.number = null;
      entry.saved = null;
    }
    if (answer === null) return;
    const seen = Math.max(this.seen, ...steps.map((step) => step.entry.number ?? 0));
    const verdicts = steps.map((step) => ({
      item: step.entry.item,
      label: step.entry.label,
      answer: step.answer,
      score: step.score,
      rank: step.rank,
    }));
    const { numbers } = await this.api.post(`${this.base}/learn`, { verdicts, seen });
    steps.forEach((step, at) => {
      step.entry.number = numbers[at];
      step.entry.saved = step.answer;
      step.entry.by = null;
    });
  }

  /**
   * Whether a refused answer need not be sent again, since others have answered meanwhile: what
   * they said is shown, and the person decides.
   * @param {Step} step @param {Problem} problem
   */
  async giveWay({ entry, answer }, problem) {
    const [standing] = problem.standing;
    if (standing && answer !== null) {
      accept(entry, standing);
      this.conflicts.push({ entry, answer, standing });
      return true;
    }
    const number = entry.number;
    if (number !== null) await this.sync(entry).catch(() => {}); // it may have been taken back elsewhere
    return entry.number !== number;
  }

  /** A question about which nothing is to be decided any more. @param {Entry} entry */
  settle(entry) {
    this.conflicts = this.conflicts.filter((one) => one.entry !== entry);
  }

  /**
   * Bring the questions on the page up to what others have answered since.
   * @param {Entry} [also] although its answer waits
   */
  async sync(also) {
    const before = this.sent;
    const { verdicts, last } = await this.api.get(`${this.base}/verdicts`, {
      params: { after: this.seen, limit: MOST_READ },
    });
    // What was read while an answer was on its way may be older than the answer: read it next time.
    if (last <= this.seen || before !== this.sent || (this.busy && !also)) return;
    this.seen = last;
    /** What stands by now for each question. @type {Map<string, Standing | null>} */
    const changed = new Map();
    for (const one of verdicts) {
      const question = JSON.stringify([one.item, one.label]);
      if (!one.undone && !one.superseded) changed.set(question, one);
      else if (!changed.has(question)) changed.set(question, null);
    }
    let news = false;
    for (const [question, standing] of changed) {
      const [item, label] = JSON.parse(question);
      const entry = this.find(item, label);
      if (entry && entry.number === (standing?.number ?? null)) continue; // said on this page
      news = true;
      if (entry && (entry === also || !this.waiting.some((step) => step.entry === entry)))
        accept(entry, standing);
    }
    if (!news) return;
    for (const listener of this.others) listener();
    this.tell(true);
  }

  /**
   * Read what questions are about. What others answer while it is read is looked at again, since
   * it may be older than their answers.
   * @template T @param {Promise<T>} read @returns {Promise<T>}
   */
  async reading(read) {
    const before = this.seen;
    const found = await read;
    this.seen = Math.min(this.seen, before);
    return found;
  }

  /**
   * Look for others' answers when the page comes to the front, and every few seconds while it is
   * there.
   */
  follow() {
    let ended = false;
    let looking = false;
    let timer = 0;
    const look = async () => {
      if (looking || ended) return;
      looking = true;
      clearTimeout(timer);
      // Without an answer the page stays as it is; what the person does tells of the trouble.
      if (document.visibilityState === "visible") await this.sync().catch(() => {});
      looking = false;
      if (!ended) timer = window.setTimeout(look, EVERY);
    };
    window.addEventListener("focus", look);
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      ended = true;
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
    this.single = false;
    this.tell(true);
  }

  /** @param {boolean} [saved] whether something reached the service, or was given up */
  tell(saved = false) {
    for (const listener of this.listeners) listener(saved);
  }
}

/**
 * Let a question have the answer that stands, which was not given on this page.
 * @param {Entry} entry
 * @param {Standing | null} standing
 */
function accept(entry, standing) {
  entry.answer = entry.saved = standing ? standing.answer : null;
  entry.number = standing ? standing.number : null;
  entry.by = standing ? byWhom(standing, "in another tab") : null;
}

/** A line for each answer that was refused, and what can be done about it. @param {Outbox} box */
export function conflictLines(box) {
  return box.conflicts.map(({ entry, answer, standing }) =>
    h("div.notice.conflict",
      h("p.break",
        h("strong", entry.label),
        ` for ${entry.item}: answered `,
        h("strong", word(standing.answer)),
        ` ${byWhom(standing, "in another tab")} meanwhile.`,
      ),
      h("div.row",
        h("button", { onclick: () => box.put(entry, answer) },
          icon(answer ? "review" : "close"),
          `${word(answer)} all the same`,
        ),
        h("button.quiet", { onclick: () => (box.settle(entry), box.tell()) },
          `Leave ${word(standing.answer)}`,
        ),
      ),
    ),
  );
}

/** One box for each model, for as long as the page is open. @type {Map<string, Outbox>} */
const boxes = new Map();

window.addEventListener("beforeunload", (event) => {
  if ([...boxes.values()].some((box) => box.waiting.length)) event.preventDefault();
});

/** @param {Context} context @returns {Outbox} */
export function outboxOf({ api, model, toast }) {
  let box = boxes.get(model.id);
  if (!box) {
    box = new Outbox(api, model);
    boxes.set(model.id, box);
    const mine = box;
    let told = false;
    box.listeners.add(() => {
      if (mine.error && mine.listeners.size === 1 && !told)
        toast(`An answer was not saved: ${mine.error.message}`, { error: true });
      told = Boolean(mine.error);
    });
  }
  return box;
}
