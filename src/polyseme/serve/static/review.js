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
import { byItem, chooseItem } from "./byitem.js";
import { byTag, chooseTag } from "./bytag.js";
import { exportMenu } from "./export.js";

/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./app.js").Route} Route */

/** @param {HTMLElement} root @param {Context} context */
export function mount(root, context) {
  const stage = h("div.review-stage");
  const unsent = h("div.unsent", { role: "alert" });
  const sections = h("nav.segments", { aria_label: "Review by" });
  const box = outboxOf(context);
  let leave = () => {};

  const showUnsent = () => {
    /** @type {any} */ (window).__studio.review = {
      waiting: box.waiting.length,
      failed: Boolean(box.error),
      seen: box.seen,
    };
    clear(unsent,
      box.error &&
        h("div.notice.notice-error",
          h("p",
            h("strong", `${plural(box.waiting.length, "answer")} not saved. `),
            box.error.message,
          ),
          h("div.row",
            h("button.primary", { onclick: () => box.send() }, "Try again"),
            h("button", { onclick: () => box.discard() }, "Discard"),
          ),
        ),
      conflictLines(box),
    );
  };
  box.listeners.add(showUnsent);

  /** @param {Route} route */
  const update = (route) => {
    leave();
    leave = () => {};
    const [by, ...rest] = route.args;
    const name = rest.join("/");
    const items = by === "item" || by === "untagged";
    const links = [
      ["#/review", "By tag", !items],
      ["#/review/item", "By item", items],
    ];
    clear(sections,
      links.map(([href, text, here]) => h("a", { href, aria_current: here ? "page" : null }, text)),
    );
    clear(stage);
    if (!context.model.collection) {
      clear(stage,
        empty(
          "No items to review",
          "Start the service with a folder or a table of items (“--items”), and they appear here.",
        ),
      );
      return;
    }
    if (by === "label" && name) leave = byTag(stage, context, box, name);
    else if (by === "item" && name) leave = byItem(stage, context, box, name);
    else if (items) leave = chooseItem(stage, context, by === "untagged" ? by : undefined);
    else leave = chooseTag(stage, context);
  };

  add(root,
    h("div.page",
      h("header.view-head",
        h("h1", "Review"),
        sections,
        h("div.grow"),
        context.model.collection && exportMenu(context),
      ),
      context.model.collection &&
        !context.can("review") &&
        h("p.notice", "You may look, but not answer: your token lacks the scope “review”."),
      unsent,
      stage,
    ),
  );
  showUnsent();
  update(context.route);
  const stop = box.follow();
  return {
    update,
    unmount: () => {
      stop();
      leave();
      box.listeners.delete(showUnsent);
    },
  };
}
