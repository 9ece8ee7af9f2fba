"use strict";
// All texts reach the page as text nodes: nothing that a document or a query holds is read as HTML.
const byId = (id) => document.getElementById(id);
const state = { about: null, view: "results", number: 0 };

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

async function ask(route, body) {
  const answer = await fetch(`api/${route}`, { method: "POST", body: JSON.stringify(body) });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

function say(text, error = false) {
  byId("status").textContent = text;
  byId("status").className = error ? "error" : "";
}

const segments = (pieces) => pieces.map(([text, match]) => (match ? element("mark", {}, text) : text));

function grade(value) {
  if (value === null) return null;
  return element("span", { class: value > 0 ? "relevant" : "irrelevant" }, value > 0 ? `relevant (${value})` : "not relevant");
}

function facts(...parts) {
  const line = element("p", { class: "facts" });
  parts.filter((part) => part !== null).forEach((part, at) => line.append(...(at ? [" · "] : []), part));
  return line;
}

function documentOf(row, depth, other) {
  const rank = row.other === null ? `below ${depth}` : row.other ? `rank ${row.other}` : "not found";
  const elsewhere = "other" in row ? `${rank} by ${other}` : null;
  return element(
    "article", { "data-id": row.id },
    facts(`${row.rank}.`, row.id, `score ${row.score}`, elsewhere, grade(row.grade)),
    element("h3", {}, ...segments(row.title)),
    element("p", {}, ...segments(row.text)),
  );
}

function readBy(rows) {
  if (!rows.length) return null;
  const weighed = rows.every((row) => row.attention !== undefined);
  const title = `Read with the query: ${rows.length} documents${weighed ? ", most attention first" : ""}`;
  const list = element("div", { class: "read", tabindex: "0" }, element("strong", {}, title));
  const shown = weighed ? [...rows].sort((one, two) => two.attention - one.attention) : rows;
  for (const row of shown) {
    const attention = weighed ? [`attention ${row.attention.toFixed(3)}`] : [];
    list.append(facts(...attention, row.memory, row.id), element("p", {}, row.text));
  }
  return list;
}

function columnOf(column, depth, other) {
  const node = element("div", { class: "column", "data-method": column.method });
  node.append(element("h2", {}, column.method), facts(`${column.milliseconds} ms`));
  if (column.notice) node.append(element("p", { class: "notice" }, column.notice));
  const read = readBy(column.read);
  if (read) node.append(read);
  node.append(...column.documents.map((row) => documentOf(row, depth, other)));
  if (!column.documents.length) node.append(element("p", { class: "notice" }, "no document"));
  return node;
}

function chosen() {
  const names = [byId("left").value, byId("right").value].filter((name) => name);
  return [...new Set(names)];
}

function options() {
  const boxes = [...byId("memories").querySelectorAll("input")];
  return boxes.length ? { memories: boxes.filter((box) => box.checked).map((box) => box.value) } : {};
}

async function showResults(query, names) {
  const answer = await ask("search", { query, methods: names, count: Number(byId("count").value), options: options() });
  return () => {
    const known = answer.query.id === null ? [] : [element("p", { class: "notice" },
      `This is query ${answer.query.id} of the collection: ${answer.query.relevant} relevant documents are known.`)];
    const columns = answer.columns.map((column, at) => columnOf(column, answer.depth, (answer.columns[1 - at] || {}).method));
    byId("results").replaceChildren(...known, element("div", { class: "columns" }, ...columns));
    say(`${answer.columns.map((column) => `${column.method}: ${column.documents.length} documents`).join(", ")}`);
  };
}

async function showGains(names) {
  if (names.length < 2) throw new Error("choose two methods");
  const answer = await ask("gains", { left: names[0], right: names[1] });
  const head = ["gain", names[0], names[1]].map((text) => element("th", { class: "number" }, text));
  const body = element("tbody");
  for (const row of answer.rows) {
    const numbers = [row.gain, row.left, row.right].map((value) => element("td", { class: "number" }, value.toFixed(3)));
    const line = element("tr", { tabindex: "0", "data-id": row.id }, ...numbers, element("td", {}, row.text));
    const open = () => { byId("query").value = row.text; select("results"); };
    line.addEventListener("click", open);
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    body.append(line);
  }
  return () => {
    byId("gains").replaceChildren(
      element("p", { class: "notice" }, `${answer.metric} of ${answer.queries} queries: ${names[0]} ${answer.means[0].toFixed(4)}, `
        + `${names[1]} ${answer.means[1].toFixed(4)}. Click a query to compare its documents.`),
      element("table", {}, element("thead", {}, element("tr", {}, ...head, element("th", {}, "query"))), body),
    );
    say(`${answer.rows.length} queries, largest gain of ${names[1]} first`);
  };
}

async function show() {
  const number = ++state.number, query = byId("query").value, names = chosen();
  for (const pane of document.querySelectorAll("[data-pane]")) pane.hidden = pane.id !== state.view;
  if (!query.trim() && state.view !== "gains") {
    byId(state.view).replaceChildren();
    return say("type a query");
  }
  say("…");
  try {
    const views = { results: () => showResults(query, names), gains: () => showGains(names) };
    const put = await views[state.view]();
    if (number === state.number) put();
  } catch (error) {
    if (number === state.number) { byId(state.view).replaceChildren(); say(error.message, true); }
  }
}

function select(view) {
  state.view = view;
  for (const button of document.querySelectorAll("nav button")) button.setAttribute("aria-pressed", button.dataset.view === view);
  show();
}

function listMemories() {
  const names = new Set(state.about.methods.filter((method) => chosen().includes(method.name)).flatMap((method) => method.memories));
  const before = new Map([...byId("memories").querySelectorAll("input")].map((box) => [box.value, box.checked]));
  byId("memories").hidden = !names.size;
  byId("memories").replaceChildren(element("legend", {}, "Memories that the query reads"), ...[...names].map((name) => {
    const box = element("input", { type: "checkbox", value: name });
    box.checked = before.get(name) ?? true;
    box.addEventListener("change", show);
    return element("label", {}, box, ` ${name} `);
  }));
}

async function start() {
  try {
    state.about = await ask("about", {});
  } catch (error) {
    return say(error.message, true);
  }
  const { collection, documents, methods, chosen: first } = state.about;
  document.title = `${collection}: zerodr`;
  byId("title").textContent = `${collection}: ${documents.toLocaleString("en")} documents, ${state.about.queries.toLocaleString("en")} queries`;
  for (const [id, none] of [["left", false], ["right", true]]) {
    byId(id).append(...(none ? [element("option", { value: "" }, "none")] : []),
      ...methods.map((method) => element("option", { value: method.name }, method.name)));
    byId(id).addEventListener("change", () => { listMemories(); show(); });
  }
  byId("left").value = first[0];
  byId("right").value = first[1] || "";
  listMemories();
  byId("form").addEventListener("submit", (event) => { event.preventDefault(); select(state.view === "gains" ? "results" : state.view); });
  byId("query").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); byId("form").requestSubmit(); }
  });
  for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => select(button.dataset.view));
  say("type a query, or open the gains by query");
}

start();
