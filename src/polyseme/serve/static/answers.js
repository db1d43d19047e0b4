// @ts-check
/**
 * Answers on their way to the service.
 *
 * In: yes, no, or an answer taken back. Out: verdicts, sent one after the other in the order they
 * were given; what could not be sent is kept and shown until it is.
 */

import { clear, h } from "./dom.js";
import { Problem } from "./api.js";
import { probabilityText } from "./parts.js";

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
 * @property {number} shift how far the probability moved last
 */
/** @typedef {{entry: Entry, answer: boolean | null, score: number | null, rank: number | null}} Step */

const BATCH = 32; // answers in one request

/** A question that nobody has answered. @param {string} item @param {string} label @param {Partial<Entry>} [known] @returns {Entry} */
export function newEntry(item, label, known = {}) {
  return { item, label, probability: null, rank: null, why: "", answer: null, saved: null, number: null, shift: 0, ...known };
}

/**
 * Show what was answered, whether the service has it, and how the probability moved.
 * @param {Entry} entry @param {{frame: HTMLElement, yes: HTMLElement, no: HTMLElement, number: HTMLElement}} parts
 */
export function drawAnswer(entry, { frame, yes, no, number }) {
  frame.dataset.answer = entry.answer === null ? "open" : entry.answer ? "yes" : "no";
  frame.dataset.sending = String(entry.answer !== entry.saved);
  yes.setAttribute("aria-pressed", String(entry.answer === true));
  no.setAttribute("aria-pressed", String(entry.answer === false));
  const moved = Math.abs(entry.shift) >= 0.005 && entry.answer === null;
  number.dataset.moved = moved ? (entry.shift > 0 ? "up" : "down") : "";
  clear(number, entry.probability !== null && probabilityText(entry.probability), moved && h("span", { aria_hidden: "true" }, entry.shift > 0 ? " ▲" : " ▼"));
}

/** The key that was pressed, "u" for Ctrl-Z, too; nothing where it is meant for something else. @param {KeyboardEvent} event @param {string} others what takes keys of its own */
export function keyOf(event, others) {
  if (event.defaultPrevented || event.altKey || /** @type {HTMLElement} */ (event.target).closest(others)) return "";
  if (event.ctrlKey || event.metaKey) return event.key === "z" ? "u" : "";
  return event.key;
}

/** Answers in order: sent at once, and kept until the service has them. */
export class Outbox {
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
    /** Told of every change, and whether something reached the service. @type {Set<(saved: boolean) => void>} */
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
    if (answer === null) return;
    const verdicts = steps.map((step) => ({ item: step.entry.item, label: step.entry.label, answer: step.answer, score: step.score, rank: step.rank }));
    const { numbers } = await this.api.post(`${this.base}/learn`, { verdicts });
    steps.forEach((step, at) => {
      step.entry.number = numbers[at];
      step.entry.saved = step.answer;
    });
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

/** One box for each model, for as long as the page is open. @type {Map<string, Outbox>} */
const boxes = new Map();

window.addEventListener("beforeunload", (event) => {
  if ([...boxes.values()].some((box) => box.waiting.length)) event.preventDefault();
});

/** @param {Context} context @returns {Outbox} */
export function outboxOf({ api, model, toast }) {
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
