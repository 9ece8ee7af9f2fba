"use strict";
/* Sort a table by a click on a heading (down, up, as it was), filter its rows, show what is behind a cell. */
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], original = [...body.rows];
  const number = cell => cell && cell.dataset.value !== undefined && cell.dataset.value !== "" ? Number(cell.dataset.value) : NaN;
  const order = (column, sign) => (one, other) => {
    const [a, b] = [one.cells[column], other.cells[column]];
    const [x, y] = [number(a), number(b)];
    if (isNaN(x) && isNaN(y)) return sign * -a.textContent.trim().localeCompare(b.textContent.trim());
    return isNaN(x) ? 1 : isNaN(y) ? -1 : sign * (y - x);
  };
  table.tHead.addEventListener("click", event => {
    const heading = event.target.closest("th");
    if (!heading || !event.target.closest("button")) return;
    const next = {none: "descending", descending: "ascending", ascending: "none"}[heading.getAttribute("aria-sort") || "none"];
    for (const other of table.tHead.querySelectorAll("th")) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", next);
    const rows = original.filter(row => next === "none" || !row.classList.contains("family"));
    if (next !== "none") rows.sort(order(heading.cellIndex, next === "descending" ? 1 : -1));
    body.replaceChildren(...rows);
  });
  const controls = document.querySelector(`[data-controls="${table.id}"]`);
  if (!controls) continue;
  const [words, family, seen] = ["input", "select", "output"].map(tag => controls.querySelector(tag));
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean), filled = new Set();
    let shown = 0;
    for (const row of original) {
      if (row.classList.contains("family")) continue;
      const text = `${row.dataset.text || row.textContent} ${row.dataset.family || ""}`.toLowerCase();
      row.hidden = !(wanted.every(word => text.includes(word)) && (!family || !family.value || row.dataset.family === family.value));
      if (!row.hidden) { filled.add(row.dataset.family); shown++; }
    }
    for (const row of original) if (row.classList.contains("family")) row.hidden = !filled.has(row.dataset.family);
    seen.textContent = shown ? `${shown} rows` : "no row matches";
  };
  words.addEventListener("input", filter);
  if (family) family.addEventListener("change", filter);
}

const details = document.getElementById("cells"), dialog = document.querySelector("dialog");
if (details && dialog) {
  const cells = JSON.parse(details.textContent);
  const add = (parent, tag, text) => parent.appendChild(Object.assign(document.createElement(tag), {textContent: text}));
  const show = cell => {
    const content = dialog.querySelector("div");
    content.replaceChildren();
    add(content, "h2", cell.title);
    const list = add(content, "dl", "");
    for (const [name, text] of cell.facts) { add(list, "dt", name); add(list, "dd", text); }
    for (const [name, address] of cell.links || []) add(add(content, "p", ""), "a", name).href = address;
    for (const [name, line] of cell.commands || []) { add(content, "h3", name); add(content, "pre", line).className = "command"; }
    if (cell.lineage) { add(content, "h3", "lineage"); add(content, "pre", cell.lineage); }
    dialog.showModal();
  };
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-cell]");
    if (button) show(cells[button.closest("tr").dataset.name][button.dataset.cell]);
    else if (event.target === dialog) dialog.close();
  });
}
