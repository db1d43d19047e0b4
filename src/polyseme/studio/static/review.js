// @ts-check
/**
 * Review: yes or no to tags of items, by tag or by item.
 *
 * In: `#/review`, `#/review/label/NAME`, `#/review/item`, `#/review/untagged`, `#/review/item/ID`.
 * Out: the view of one of these, what could not be saved, and the menu of exports.
 */

import { add, clear, h } from "./dom.js";
import { empty, plural } from "./parts.js";
import { conflictLines, outboxOf } from "./answers.js";
import { showBoard } from "./board.js";
import { chooseItem } from "./byitem.js";
import { chooseTag } from "./bytag.js";
import { exportMenu } from "./export.js";
import { showItem } from "./item.js";

/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./app.js").Route} Route */

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export function mount(root, context) {
  const review = new Review(root, context);
  review.update(context.route);
  return review;
}

class Review {
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   */
  constructor(root, context) {
    this.context = context;
    this.outbox = outboxOf(context);
    this.leave = () => {};
    this.stage = h("div.review-stage");
    this.unsent = h("div.unsent", { role: "alert" });
    this.sections = h("nav.segments", { aria_label: "Review by" });
    this.onOutbox = () => this.drawUnsent();
    this.outbox.listeners.add(this.onOutbox);
    this.compose(root);
    this.drawUnsent();
    this.stopFollowing = this.outbox.follow();
  }

  unmount() {
    this.stopFollowing();
    this.leave();
    this.outbox.listeners.delete(this.onOutbox);
  }

  /** Lay the page out. @param {HTMLElement} root */
  compose(root) {
    const { context } = this;
    const hasItems = Boolean(context.model.collection);
    const mayOnlyLook = hasItems && !context.can("review");
    add(root,
      h("div.page",
        h("header.view-head",
          h("h1", "Review"),
          this.sections,
          h("div.grow"),
          hasItems && exportMenu(context),
        ),
        mayOnlyLook &&
          h("p.notice", "You may look, but not answer: your token lacks the scope “review”."),
        this.unsent,
        this.stage,
      ),
    );
  }

  /** Show what the address names. @param {Route} route */
  update(route) {
    const [mode, ...rest] = route.args;
    const isByItem = mode === "item" || mode === "untagged";
    this.leave();
    clear(this.stage);
    clear(this.sections,
      sectionLink("#/review", "By tag", !isByItem),
      sectionLink("#/review/item", "By item", isByItem),
    );
    this.leave = this.show(mode, rest.join("/"));
  }

  /**
   * Show what the address names; returns what unmounts it.
   * @param {string} mode
   * @param {string} name
   * @returns {() => void}
   */
  show(mode, name) {
    const { context, outbox, stage } = this;
    if (!context.model.collection) {
      add(stage, noItems());
      return () => {};
    }
    if (mode === "label" && name) return showBoard(stage, context, outbox, name);
    if (mode === "item" && name) return showItem(stage, context, outbox, name);
    if (mode === "untagged") return chooseItem(stage, context, "untagged");
    if (mode === "item") return chooseItem(stage, context);
    return chooseTag(stage, context);
  }

  drawUnsent() {
    const { outbox } = this;
    /** @type {any} */ (window).__studio.review = {
      waiting: outbox.waiting.length,
      failed: Boolean(outbox.error),
    };
    clear(this.unsent, outbox.error && this.failure(), conflictLines(outbox));
  }

  /** What was not saved and why, to try again or give up. */
  failure() {
    const { outbox } = this;
    return h("div.notice.notice-error",
      h("p",
        h("strong", `${plural(outbox.waiting.length, "answer")} not saved. `),
        outbox.error.message,
      ),
      h("div.row",
        h("button.primary", { onclick: () => outbox.send() }, "Try again"),
        h("button", { onclick: () => outbox.discard() }, "Discard"),
      ),
    );
  }
}

/**
 * @param {string} href
 * @param {string} text
 * @param {boolean} isCurrent
 */
function sectionLink(href, text, isCurrent) {
  return h("a", { href, aria_current: isCurrent ? "page" : null }, text);
}

function noItems() {
  const text =
    "Start the service with a folder or a table of items (“--items”), and they appear here.";
  return empty("No items to review", text);
}
