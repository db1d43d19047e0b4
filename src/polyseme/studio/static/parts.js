// @ts-check
/**
 * Small parts that several views show: icons, kinds of labels, probabilities, states of waiting.
 *
 * In: plain values. Out: elements.
 */

import { h, s, uid } from "./dom.js";

/** What each kind of label means, in one sentence. @type {Record<string, string>} */
const KINDS = {
  seen: "seen: training items carry this tag",
  unseen: "unseen: no training item carries this tag; it is known by the tag sets it stands in",
  oov: "oov: out of vocabulary; this tag turned up after the space was learned",
};

/** Strokes of the icons, on a grid of 24. @type {Record<string, string>} */
const ICONS = {
  map: "M5 17a2 2 0 1 0 .01 0M11 7a3 3 0 1 0 .01 0M18 14a2.5 2.5 0 1 0 .01 0M19 5a1 1 0 1 0 .01 0",
  ask: "M12 4a8 8 0 1 1-4.6 14.5L4 20l1.2-3.6A8 8 0 0 1 12 4M9.8 10a2.2 2.2 0 1 1 3 2c-.6.3-.8.7-.8 1.4M12 16v.01",
  review: "M4 12.5l4.5 4.5L20 6",
  vocabulary: "M4 5h7l9 9-6 6-9-9zM8 8.5v.01",
  model: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  close: "M6 6l12 12M18 6L6 18",
  search: "M10.5 4a6.5 6.5 0 1 0 .01 0M15.5 15.5L20 20",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  lasso: "M12 5c5 0 8 2 8 5s-3 5-8 5-8-2-8-5 3-5 8-5M7 14.5c-2 1-2 4 .5 4 2 0 2 2 1 3.5",
  help: "M9 9.3a3 3 0 1 1 4.2 2.7c-.9.4-1.2 1-1.2 2M12 17.5v.01",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9v.01",
  sound: "M4 10v4h3l5 4V6L7 10zM16 9a4 4 0 0 1 0 6M18.5 6.5a8 8 0 0 1 0 11",
  text: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  numbers: "M6 4v16M12 4v16M18 4v16M4 8h4M10 14h4M16 10h4",
  back: "M14 6l-6 6 6 6",
  next: "M10 6l6 6-6 6",
  undo: "M8 6L4 10l4 4M4 10h10a5 5 0 0 1 0 10h-3",
  list: "M9 6h11M9 12h11M9 18h11M4.5 6v.01M4.5 12v.01M4.5 18v.01",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
};

/** An icon for eyes only; the control around it carries the name. @param {string} name */
export function icon(name) {
  return s("svg.icon", { viewBox: "0 0 24 24", aria_hidden: "true", focusable: "false" },
    s("path", { d: ICONS[name] || "" }),
  );
}

/**
 * A button with an icon and a name for screen readers.
 * @param {string} name
 * @param {string} label
 * @param {Record<string, any>} [props]
 */
export function iconButton(name, label, props = {}) {
  return h("button.icon-button", { aria_label: label, title: label, ...props }, icon(name));
}

/** The badge of a label's kind, with its meaning as tooltip. @param {string} kind */
export function kindBadge(kind) {
  return h("span", { class: `kind kind-${kind}`, title: KINDS[kind] || kind }, kind);
}

/**
 * What the kinds other than seen mean, where they occur, in words that need no pointer.
 * @param {Iterable<string>} kinds
 */
export function kindLegend(kinds) {
  const badged = new Set(kinds);
  badged.delete("seen");
  const rows = Object.keys(KINDS)
    .filter((kind) => badged.has(kind))
    .map((kind) => h("li", kindBadge(kind), h("span", KINDS[kind].split(": ")[1])));
  return rows.length ? h("ul.kind-legend.muted.small", rows) : null;
}

/**
 * A probability as people read it: `0.87`, `< 0.01`.
 * @param {number | null | undefined} probability
 */
export function probabilityText(probability) {
  if (probability === null || probability === undefined || Number.isNaN(probability)) return "–";
  if (probability > 0 && probability < 0.01) return "< 0.01";
  if (probability < 1 && probability > 0.99) return "> 0.99";
  return probability.toFixed(2);
}

/** A share as percent, never broken over two lines. @param {number | null | undefined} share */
export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const isSmall = share > 0 && share < 0.095; // below 9.5 % with one decimal: 3.3 %
  return `${(100 * share).toFixed(isSmall ? 1 : 0)}\u00a0%`;
}

/** A count with thin separators. @param {number} n */
export function count(n) {
  return Number(n).toLocaleString("en").replaceAll(",", "\u202f");
}

/** `1 item`, `3 items`. @param {number} n @param {string} singular @param {string} [many] */
export function plural(n, singular, many = `${singular}s`) {
  return `${count(n)} ${n === 1 ? singular : many}`;
}

/** A bar for eyes only. @param {number} share how full it is, from 0 to 1 */
export function bar(share) {
  const filled = Math.max(0, Math.min(1, share));
  return h("span.pbar", { aria_hidden: "true" },
    h("span", { style: { width: `${filled * 100}%` } }),
  );
}

/** Waiting. @param {string} [text] */
export function loading(text = "Loading…") {
  return h("div.state.state-loading", { role: "status" },
    h("span.spinner", { aria_hidden: "true" }),
    h("p", text),
  );
}

/**
 * Nothing here, and what to do about it.
 * @param {string} title
 * @param {string} [text]
 * @param {...any} actions
 */
export function empty(title, text = "", ...actions) {
  return h("div.state",
    h("h2", title),
    text && h("p", text),
    actions.length ? h("div.row", actions) : null,
  );
}

/**
 * What went wrong, in the service's words, and a way on.
 * @param {any} error
 * @param {() => void} [retry]
 */
export function failed(error, retry) {
  const denied = error && error.status === 403;
  return h("div.state.state-error", { role: "alert" },
    h("h2", denied ? "Not permitted" : "That did not work"),
    h("p", (error && (error.detail || error.message)) || "Something went wrong."),
    retry && h("button", { onclick: retry }, "Try again"),
  );
}

/**
 * A dialog that takes the keyboard while it is open; resolves with what `close` was given.
 * @param {string} title @param {(close: (value?: any) => void) => any} body
 * @returns {Promise<any>}
 */
export function dialog(title, body) {
  return new Promise((resolve) => {
    const id = uid("dialog");
    const close = (/** @type {any} */ value) => {
      box.close();
      box.remove();
      resolve(value);
    };
    const cancel = (/** @type {Event} */ event) => {
      event.preventDefault();
      close(undefined);
    };
    const closeOutside = (/** @type {Event} */ event) => {
      if (event.target === box) close(undefined);
    };
    const box = h("dialog.dialog", { aria_labelledby: id, oncancel: cancel, onclick: closeOutside },
      h("header",
        h("h2", { id }, title),
        iconButton("close", "Close", { onclick: () => close(undefined) }),
      ),
      body(close),
    );
    document.body.append(box);
    box.showModal();
    box.querySelector("input, textarea, select, .primary")?.focus();
  });
}

/**
 * The last row of a dialog: Cancel, and the button that goes on.
 * @param {(value?: any) => void} close
 * @param {any} submit
 */
export function dialogEnd(close, submit) {
  return h("div.row.end", h("button", { onclick: () => close() }, "Cancel"), submit);
}

/**
 * The button that sends a form.
 * @param {string} text
 * @param {boolean} [disabled]
 */
export function submitButton(text, disabled = false) {
  return h("button.primary", { type: "submit", disabled }, text);
}

/**
 * Ask before something is done; without an action there is only Cancel.
 * @param {string} title
 * @param {any} body
 * @param {string | null} action
 * @returns {Promise<any>}
 */
export function confirmed(title, body, action) {
  return dialog(title, (close) =>
    h("div.stack",
      body,
      dialogEnd(close, action && h("button.primary", { onclick: () => close(true) }, action)),
    ),
  );
}

/** A form that does not leave the page. @param {() => void} submit @param {...any} body */
export function form(submit, ...body) {
  const onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    submit();
  };
  return h("form.stack", { onsubmit }, body);
}

/** A field with its name above it. @param {string} name @param {any} input */
export function field(name, input) {
  return h("label.field", h("span", name), input);
}

/**
 * A row of choices, of which one holds: value, text and perhaps a tooltip of each.
 * @param {string} label
 * @param {string} name
 * @param {string[][]} choices
 * @param {string} chosen
 * @param {(value: any) => void} choose
 */
export function segments(label, name, choices, chosen, choose) {
  return h("fieldset.segments", { aria_label: label },
    choices.map(([value, text, title]) =>
      h("label", { title },
        h("input", {
          type: "radio",
          name,
          value,
          checked: value === chosen,
          onchange: () => choose(value),
        }),
        h("span", text),
      ),
    ),
  );
}

/** A name and a value in a list of facts. @param {string} name @param {any} value */
export function fact(name, value) {
  return h("div", h("dt", name), h("dd", value));
}
