/* Play the recorded session in place of its still picture, and stop it, on a click; without this, the link opens it. */
addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href$="images/session.svg"]');
  const picture = link?.querySelector("img");
  if (!picture || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const still = (picture.dataset.still ??= picture.src);
  picture.src = picture.src === still ? link.href : still;
});
