"use strict";
// Tables whose headings sort and whose rows can be searched, and details that are open in print (but for raw files).
// Without this script everything is there, unsorted.

const missing = null;

function valueOf(row, column) {
  const text = row.cells[column].dataset.value;
  if (text === undefined) return missing;
  return row.cells[column].classList.contains("number") ? Number(text) : text.toLowerCase();
}

function compared(a, b) {
  return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
}

// What is missing comes last in either direction; equal rows keep their order.
function sortRows(body, column, descending) {
  const keyed = Array.from(body.rows, (row) => ({ row, value: valueOf(row, column) }));
  keyed.sort((a, b) => {
    if (a.value === missing || b.value === missing) return (a.value === missing) - (b.value === missing);
    return descending ? compared(b.value, a.value) : compared(a.value, b.value);
  });
  body.append(...keyed.map((each) => each.row));
}

function makeSortable(table, tell) {
  const headings = Array.from(table.tHead.rows[0].cells);
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      const descending = before ? before === "ascending" : heading.classList.contains("number");
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortRows(table.tBodies[0], column, descending);
      tell(`sorted by ${button.textContent}, ${descending ? "descending" : "ascending"}`);
    });
  });
}

// A row is shown if each word that is looked for occurs in one of its cells.
function makeSearchable(label, table, tell) {
  const input = label.querySelector("input");
  label.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const texts = Array.from(row.cells, (cell) => cell.textContent.toLowerCase());
      const found = words.every((word) => texts.some((text) => text.includes(word)));
      row.classList.toggle("unmatched", !found);
    }
    tell();
  });
}

for (const block of document.querySelectorAll(".table")) {
  const table = block.querySelector("table");
  const status = block.querySelector(".status");
  const label = block.querySelector(".search");
  if (!status) continue;
  const rows = table.tBodies[0].rows;
  const count = (n) => n.toLocaleString("en");
  let order = "";
  const tell = (sorted) => {
    order = sorted ?? order;
    const shown = Array.from(rows).filter((row) => !row.classList.contains("unmatched")).length;
    const which = shown === rows.length ? `${count(shown)} rows` : `${count(shown)} of ${count(rows.length)} rows`;
    status.textContent = order ? `${which}, ${order}` : which;
  };
  if (table.classList.contains("sortable")) makeSortable(table, tell);
  if (label) makeSearchable(label, table, tell);
}

const closed = [];
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open], .raw)")) {
    closed.push(details);
    details.open = true;
  }
});
window.addEventListener("afterprint", () => {
  for (const details of closed.splice(0)) details.open = false;
});
