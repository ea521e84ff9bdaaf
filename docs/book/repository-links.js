// Links from a page of the book to a file of the repository outside of the book: right in a
// checkout, but not on a server that has the book alone. There they lead to the repository.
(() => {
  const repository = "https://github.com/zonal-rs/zonal/blob/main/";
  for (const link of document.querySelectorAll("main a[href^='../']")) {
    // Pages are in docs/book/src; `.md` was made `.html` by the book.
    const path = new URL(link.getAttribute("href"), "https://x/docs/book/src/").pathname.slice(1);
    link.href = repository + path.replace(/\.html$/, ".md");
  }
})();
