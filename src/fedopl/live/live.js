"use strict";
// Shows what the program sends, as it comes. All words are the program's.
const heard = document.getElementById("heard");
let announcing = 0;

function announce(text) { // the last of many that come at once
  clearTimeout(announcing);
  announcing = setTimeout(() => { heard.textContent = text; }, 300);
}

function rowOf(table, key) {
  return [...table.tBodies[0].rows].find(row => row.dataset.key === key);
}

async function send(button) {
  if (button.ariaBusy === "true") return;
  button.ariaBusy = "true"; // a disabled one would lose the focus
  try {
    await fetch(button.dataset.action, {
      method: "POST", body: new URLSearchParams({ value: button.dataset.value }),
    });
  } catch {
    announce("This could not be sent: the program does not answer.");
  }
  button.ariaBusy = "false";
}

function buttonFor(what) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = what.label;
  button.setAttribute("aria-label", `${what.label}: ${what.about}`);
  button.dataset.action = what.action;
  button.dataset.value = what.value;
  return button;
}

function fill(row, table, event) {
  const heads = [...table.tHead.rows[0].cells];
  row.dataset.key = event.key;
  row.replaceChildren(...event.cells.map((text, place) => {
    const cell = document.createElement(place ? "td" : "th");
    if (!place) cell.scope = "row";
    cell.className = heads[place].className;
    if (text === null) {
      cell.className = "buttons";
      cell.append(...event.buttons.map(buttonFor));
    } else {
      cell.textContent = text;
    }
    return cell;
  }));
}

const shows = {
  text(event) {
    const element = document.getElementById(event.id);
    if (element === heard) announce(event.text);
    else element.textContent = event.text;
  },
  bar(event) {
    const bar = document.getElementById(event.id);
    bar.max = event.of;
    bar.value = event.done;
  },
  show(event) {
    const element = document.getElementById(event.id);
    const hadFocus = element === document.activeElement;
    element.hidden = !event.shown;
    if (hadFocus && !event.shown) element.closest("main").focus();
  },
  row(event) {
    const table = document.getElementById(event.id);
    const row = rowOf(table, event.key) ?? table.tBodies[0].insertRow(
      table.dataset.order === "last" ? -1 : 0);
    fill(row, table, event);
  },
  drop(event) {
    const table = document.getElementById(event.id);
    const row = rowOf(table, event.key);
    if (!row) return;
    const next = row.contains(document.activeElement)
      && (row.nextElementSibling ?? row.previousElementSibling);
    const hadFocus = row.contains(document.activeElement);
    row.remove();
    if (hadFocus) (next?.querySelector?.("button") ?? document.querySelector("main")).focus();
  },
  go(event) {
    stream.close();
    location.replace(event.to);
  },
};

document.addEventListener("click", event => {
  const button = event.target.closest("button[data-action]");
  if (button) send(button);
});

const stream = new EventSource("events");
const connection = document.getElementById("connection");
stream.onopen = () => { connection.textContent = ""; };
stream.onmessage = message => {
  const event = JSON.parse(message.data);
  shows[event.kind](event);
};
stream.onerror = () => {
  connection.textContent = stream.readyState === EventSource.CLOSED
    ? "The program has ended. This page shows what it said last."
    : "The program does not answer at the moment. This page goes on once it does.";
};
