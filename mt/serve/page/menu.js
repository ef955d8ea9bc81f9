// The list of other words, for mouse and keyboard.

export class Menu {
  constructor(element) {
    this.element = element;
    this.owner = null;
    element.addEventListener("keydown", (event) => this.onKey(event));
    element.addEventListener("click", (event) => this.onClick(event));
    document.addEventListener("pointerdown", (event) => {
      if (!element.hidden && !element.contains(event.target)) this.close(false);
    });
  }

  // Shows a line in place of words, at the word that asks.
  wait(owner, line) {
    this.owner = owner;
    this.choices = [];
    const item = document.createElement("li");
    item.className = "note";
    item.textContent = line;
    this.show([item]);
  }

  // Shows alternatives {word, probability, translation}; calls chosen with one of them.
  open(owner, alternatives, chosen) {
    this.owner = owner;
    this.choices = alternatives;
    this.chosen = chosen;
    this.show(alternatives.map((each, index) => this.render(each, index)));
    this.select(0);
    this.element.focus({ preventScroll: true });
  }

  close(refocus) {
    if (this.element.hidden) return;
    this.element.hidden = true;
    this.element.replaceChildren();
    if (refocus && this.owner?.isConnected) this.owner.focus();
  }

  render(alternative, index) {
    const item = document.createElement("li");
    item.id = `choice-${index}`;
    item.setAttribute("role", "option");
    item.dataset.index = index;
    const [word, share, rest] = ["span", "span", "span"].map((name) => document.createElement(name));
    word.textContent = alternative.word.trim() || "(nothing more)";
    share.textContent = `${Math.round(100 * alternative.probability)} %`;
    share.className = "note";
    rest.textContent = alternative.translation;
    rest.className = "rest";
    item.append(word, share, rest);
    return item;
  }

  show(items) {
    const { element } = this;
    element.replaceChildren(...items);
    element.hidden = false;
    const word = this.owner.getBoundingClientRect();
    const left = Math.min(word.left, document.documentElement.clientWidth - element.offsetWidth - 8);
    element.style.left = `${Math.max(8, left) + window.scrollX}px`;
    element.style.top = `${word.bottom + 6 + window.scrollY}px`;
  }

  select(index) {
    this.index = (index + this.choices.length) % this.choices.length;
    [...this.element.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === this.index)));
    this.element.setAttribute("aria-activedescendant", `choice-${this.index}`);
  }

  choose(index) {
    const alternative = this.choices[index];
    this.close(true);
    if (alternative) this.chosen(alternative);
  }

  onKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key === "Escape" || event.key === "Tab") this.close(true);
    else if (event.key in steps && this.choices.length) this.select(this.index + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.index);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  onClick(event) {
    const item = event.target.closest("li[data-index]");
    if (item) this.choose(Number(item.dataset.index));
  }
}
