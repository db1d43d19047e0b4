(() => {
  const box = document.getElementById("filter");
  const all = document.getElementById("all");
  const count = document.getElementById("found");
  const cards = Array.from(document.querySelectorAll(".card"));
  box.closest("label").hidden = false;
  box.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    let found = 0;
    for (const card of cards) {
      const fits = card.dataset.words.split("|").some((word) => word.includes(wanted));
      card.hidden = !fits;
      found += fits ? 1 : 0;
    }
    if (wanted) all.open = true;
    count.textContent = wanted ? found + " of " + cards.length + " emoji" : "";
  });
})();
