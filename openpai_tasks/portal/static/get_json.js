// Answers of the portal that a script asks for.

const PAUSES = [200, 1000, 3000]; // milliseconds before each new attempt

// Return the answer's value; null if it is an error. A broken connection is tried again: a browser breaks all of
// them when the computer changes its network.
export async function getJson(address) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const answer = await fetch(address, { headers: { accept: "application/json" } });
      return answer.ok ? await answer.json() : null;
    } catch {
      if (attempt === PAUSES.length) return null;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSES[attempt]));
  }
}
