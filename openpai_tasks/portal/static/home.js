// A session has its own host, which only this origin remembers: cookies of 127.0.0.1 reach every port.
const isShared = !location.hostname.endsWith(".localhost");
const opening = document.querySelector("#home");
const signIn = document.querySelector("form[data-next]");

if (opening) {
  if (isShared) localStorage.setItem("home", opening.dataset.home);
  location.replace(opening.href);
} else if (isShared && signIn) {
  const home = localStorage.getItem("home");
  if (home) location.replace(home + signIn.dataset.next);
}
