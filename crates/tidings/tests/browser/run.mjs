// The dashboard in a real browser (Debian's Chromium, driven by playwright-core), with axe-core for accessibility.
// Needs TIDINGS_URL, TIDINGS_TOKEN and MODULES (where the npm packages are); PICTURES is where screenshots of all pages go,
// if they are wanted, and README_PICTURE where the README's own picture goes, if a new one is wanted.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const { TIDINGS_URL: url, TIDINGS_TOKEN: token, MODULES, PICTURES, README_PICTURE } = process.env;
const require = createRequire(join(MODULES, "/"));
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");
const PAGE_BYTES = 200_000;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

// Calls the API.
async function api(method, path, body) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
}

// A browser of its own, signed in; whatever it complains of fails the check.
async function visit(options = {}, as = token) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(error.message));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) page.complaints.push(`${page.url()}: ${message.text()}`);
  });
  await page.goto(`${url}/ui/login`);
  await page.getByLabel("Token").fill(as);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((at) => !at.pathname.endsWith("/login"));
  return page;
}

async function leave(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

// Every page, by a name for its picture. Those that begin with @ are reached by the first link that fits.
async function places(page) {
  const link = async (from, selector) => {
    await page.goto(url + from);
    return page.locator(selector).first().getAttribute("href");
  };
  return {
    overview: "/ui/",
    overview7d: "/ui/?span=7d",
    live: "/ui/live",
    events: "/ui/events",
    event: await link("/ui/events?type=ticket.created", "td[data-label=Event] a"),
    trace: await link("/ui/events?type=deployment.finished", "td[data-label=Trace] a"),
    messages: "/ui/messages",
    message: await link("/ui/messages?status=failed", "td[data-label=Message] a"),
    "dead-letters": "/ui/dead-letters",
    "dead-letter": await link("/ui/dead-letters", "td[data-label=Letter] a"),
    inbox: "/ui/inbox?user=dora&status=all",
    bus: "/ui/bus",
    "bus-dead-letters": "/ui/bus/peek?path=shipping-labels%2F%24deadletterqueue",
    alerts: "/ui/alerts",
    alert: await link("/ui/alerts", "td[data-label=When] a"),
    tickets: "/ui/tickets",
    ticket: await link("/ui/tickets", "td[data-label='What is wrong'] a"),
    "new-ticket": "/ui/tickets/new",
    rules: "/ui/rules",
    rule: "/ui/rules/score-drops",
    "new-rule": "/ui/rules/new",
    schedules: "/ui/schedules",
    schedule: "/ui/schedules/heartbeat",
    "new-schedule": "/ui/schedules/new",
    tokens: "/ui/tokens",
    audit: "/ui/audit",
    find: "/ui/find?q=nothing",
    incidents: "/ui/incidents",
    incident: await link("/ui/incidents", "td[data-label=Raised] a"),
    invoice: await link("/ui/events?type=InvoiceUploadedForProcessing", "td[data-label=Trace] a"),
  };
}

const checks = {
  async "a token signs in, a wrong one does not, and scripts see no cookie"() {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(url);
    assert.match(page.url(), /\/ui\/login$/);
    await page.getByLabel("Token").fill("tdg_wrong");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    assert.equal(await page.evaluate(() => document.cookie), "");
    const [cookie] = (await context.cookies(`${url}/ui/`)).filter(({ name }) => name === "tidings_session");
    assert.ok(cookie.httpOnly && cookie.sameSite === "Strict", JSON.stringify(cookie));
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL("**/ui/login");
    await context.close();
  },

  async "the demo fills every list"() {
    const page = await visit();
    for (const path of ["/ui/live", "/ui/events", "/ui/messages", "/ui/dead-letters", "/ui/alerts", "/ui/tickets", "/ui/rules", "/ui/schedules", "/ui/audit", "/ui/incidents", "/ui/bus", "/ui/bus/peek?path=shipping-labels%2F%24deadletterqueue", "/ui/events?type=invoice.processed", "/ui/events?type=ServiceRequestStatusChanged", "/ui/events?type=transfer.requested"]) {
      await page.goto(url + path);
      // Within the twenty seconds that the demo promises, and some for a slow machine.
      for (let tries = 0; (await page.locator("tbody tr, article.message").count()) === 0; tries++) {
        assert.ok(tries < 60, `${path} stays empty`);
        await page.waitForTimeout(500);
        await page.reload();
      }
    }
    await leave(page);
  },

  async "every page, in both sizes and both themes, is whole, small and accessible"() {
    for (const [size, width, height] of [["wide", 1280, 900], ["small", 390, 844]]) {
      for (const colorScheme of ["light", "dark"]) {
        const page = await visit({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
        for (const [name, path] of Object.entries(await places(page))) {
          const answer = await page.goto(url + path);
          assert.equal(answer.status(), 200, path);
          const bytes = (await answer.body()).length;
          assert.ok(bytes < PAGE_BYTES, `${path}: ${bytes} bytes`);
          await page.getByRole("heading", { level: 1 }).waitFor();
          if (PICTURES) await page.screenshot({ path: join(PICTURES, `${name}-${size}-${colorScheme}.png`) });
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(over <= 0, `${path} is ${over} px too wide at ${width}`);
          await accessible(page, `${path} (${size}, ${colorScheme})`);
        }
        await leave(page);
      }
    }
  },

  async "names as long as they may be break instead of pushing a page sideways"() {
    const [rule, long] = ["r".repeat(128), "L".repeat(250)];
    const targets = [{ channel: "inbox", users: ["u".repeat(256)] }, { channel: "ntfy", topic: "t" }];
    await api("PUT", `/rules/${rule}`, { pattern: { correlationId: ["long"] }, targets });
    await api("POST", "/events", { eventId: "long", eventType: long, source: long, subject: "s".repeat(1024), correlationId: "long", data: { ["k".repeat(200)]: "v".repeat(500) } });
    const paths = ["/ui/events?correlationId=long", "/ui/events/long", "/ui/trace/long", "/ui/rules", `/ui/rules/${rule}`, `/ui/find?q=${"n".repeat(200)}`, "/ui/live", "/ui/", "/ui/audit", "/ui/messages"];
    for (const [width, height] of [[1280, 900], [390, 844]]) {
      const page = await visit({ viewport: { width, height } });
      for (const path of paths) {
        await page.goto(url + path);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${path} is ${over} px too wide at ${width}`);
      }
      await leave(page);
    }
    await api("DELETE", `/rules/${rule}`);
  },

  async "new events appear by themselves"() {
    const page = await visit();
    await page.goto(`${url}/ui/live?type=browser.*`);
    await page.locator(".live-state.on").waitFor();
    await api("POST", "/events", { eventType: "browser.seen", eventId: "browser-live" });
    await page.getByRole("link", { name: "browser-live" }).waitFor();
    await page.goto(`${url}/ui/`);
    const before = await page.locator(".figures").innerText();
    await page.waitForFunction((old) => document.querySelector(".figures").innerText !== old, before);
    await leave(page);
  },

  async "the rule editor says what is wrong while one writes, and tries the pattern"() {
    const page = await visit();
    await page.goto(`${url}/ui/rules/new`);
    await page.locator("#verdict .right").waitFor();
    await page.getByRole("textbox", { name: "Name", exact: true }).fill("from-the-browser");
    await page.locator("#pattern").fill('{"eventType": [{"prefx": "a"}]}');
    await page.locator("#verdict .wrong").waitFor();
    await page.locator("#pattern").fill('{"eventType": ["ticket.created"');
    await page.locator("#verdict .wrong").waitFor();
    await page.locator("#pattern").fill('{"eventType": ["ticket.created"]}');
    await page.getByText(/It matches [1-9]\d* of the last/).waitFor();
    await page.getByRole("button", { name: "Make the rule" }).click();
    await page.getByText("The rule is made").waitFor();
    assert.equal((await api("GET", "/rules/from-the-browser")).pattern.eventType[0], "ticket.created");
    await page.getByText("Delete…").click();
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("heading", { name: "Rules" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "from-the-browser" }).count(), 0);
    await leave(page);
  },

  async "a dead letter is looked at and sent again"() {
    const page = await visit();
    await page.goto(`${url}/ui/dead-letters?channel=webhook`);
    await page.locator("td[data-label=Letter] a").first().click();
    await page.locator(".attempts .badge.bad").first().waitFor();
    await page.locator("#payload").fill("{");
    await page.getByRole("button", { name: "Send again" }).click();
    await page.getByText("Not sent:").waitFor();
    await page.locator("#payload").fill('{"title": "edited in the browser", "text": "x"}');
    await page.getByRole("button", { name: "Send again" }).click();
    await page.getByText("A new message was made").waitFor();
    await page.getByText("Sent again for").waitFor();
    // The browser notes the refusal that was asked for above.
    page.complaints = page.complaints.filter((complaint) => !complaint.includes("status of 400"));
    await leave(page);
  },

  async "a trace tells the whole story of an event"() {
    const event = { eventType: "deployment.finished", eventId: "browser-trace", correlationId: "browser-story", subject: "checkout", data: { version: "9.9.9" } };
    await api("POST", "/events", event);
    const page = await visit();
    await page.getByRole("searchbox").or(page.getByPlaceholder("Find any id…")).first().fill("browser-story");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Trace" }).waitFor();
    for (const kind of ["event", "rule", "message"]) await page.locator(`.timeline > .${kind}`).first().waitFor();
    await page.getByRole("link", { name: "deployments" }).first().waitFor();
    await leave(page);
  },

  async "what was stored to do harm is only text"() {
    const bad = `<script>window.harmed=1</script><img src=x onerror="window.harmed=2">`;
    const event = { eventId: `x${bad}`, eventType: `t${bad}`, source: bad, subject: "javascript:window.harmed=3", correlationId: "harm", data: { text: bad, link: "javascript:window.harmed=4" } };
    await api("PUT", "/rules/harmless", { pattern: { correlationId: ["harm"] }, title: bad, text: bad, targets: [{ channel: "inbox", users: [bad] }, { channel: "ntfy", topic: "t" }] });
    const page = await visit();
    await page.goto(`${url}/ui/live`);
    await page.locator(".live-state.on").waitFor();
    await api("POST", "/events", event);
    await page.getByText("t<script>").first().waitFor();
    const message = (await api("GET", "/trace/harm")).items.find(({ kind }) => kind === "message").id;
    for (const path of ["/ui/live", "/ui/", "/ui/events", `/ui/events/${encodeURIComponent(event.eventId)}`, "/ui/trace/harm", `/ui/messages/${message}`, "/ui/messages", "/ui/rules/harmless"]) {
      await page.goto(url + path);
      await page.getByRole("heading", { level: 1 }).waitFor();
      assert.equal(await page.evaluate(() => window.harmed), undefined, path);
      assert.equal(await page.locator("main img, main script, a[href^='javascript:']").count(), 0, path);
    }
    await api("DELETE", "/rules/harmless");
    await leave(page);
  },

  async "colours follow the system until one is chosen"() {
    const page = await visit({ colorScheme: "dark" });
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await paper();
    await page.getByRole("button", { name: /^Colours: system/ }).click();
    await page.getByRole("button", { name: /^Colours: light/ }).waitFor();
    const light = await paper();
    assert.notEqual(light, dark);
    await page.goto(`${url}/ui/audit`);
    assert.equal(await paper(), light);
    await page.getByRole("button", { name: /^Colours: light/ }).click();
    await page.getByRole("button", { name: /^Colours: dark/ }).waitFor();
    assert.match(page.url(), /\/ui\/audit$/);
    assert.equal(await paper(), dark);
    await leave(page);
  },

  async "the keyboard is enough"() {
    const page = await visit();
    await page.goto(`${url}/ui/events`);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement.id === "main");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.name), "type");
    await page.keyboard.type("ticket.*");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/ui/events?type=ticket.*");
    await leave(page);
  },

  async "times are the reader's, and exact on hover"() {
    const page = await visit({ timezoneId: "Asia/Tokyo", locale: "en-GB" });
    await page.goto(`${url}/ui/events`);
    const [shown, exact] = await page.locator("td time").first().evaluate((time) => [time.textContent, time.title]);
    assert.match(exact, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    const tokyo = new Intl.DateTimeFormat("en-GB", { timeZone: "Asia/Tokyo", hour: "2-digit", minute: "2-digit", second: "2-digit" });
    assert.ok(shown.endsWith(tokyo.format(new Date(exact))), `${shown} is not ${exact}`);
    await leave(page);
  },

  async "everything can be read and sent without a script"() {
    const page = await visit({ javaScriptEnabled: false });
    for (const path of ["/ui/", "/ui/live", "/ui/events", "/ui/rules/score-drops"]) {
      assert.equal((await page.goto(url + path)).status(), 200);
      await page.getByRole("heading", { level: 1 }).waitFor();
    }
    await page.getByRole("button", { name: "Try it now" }).click();
    await page.getByText(/It matches \d+ of the last/).waitFor();
    await leave(page);
  },

  async "a user reads their inbox, which fills by itself"() {
    const user = `browser-${Date.now()}`;
    const made = await api("POST", "/tokens", { scopes: [`user:${user}`], name: "browser" });
    await api("PUT", "/rules/to-the-browser", { pattern: { eventType: ["browser.told"] }, title: "{{ data.text }}", targets: [{ channel: "inbox", users: [user] }] });
    const page = await visit({}, made.token);
    await page.getByText("Nothing unread").waitFor();
    await api("POST", "/events", { eventType: "browser.told", data: { text: "Good news" } });
    await page.locator(".inbox strong", { hasText: "Good news" }).waitFor();
    await page.getByRole("button", { name: "Mark read" }).click();
    await page.getByText("Nothing unread").waitFor();
    await page.getByRole("link", { name: "All", exact: true }).click();
    await page.locator(".inbox strong", { hasText: "Good news" }).waitFor();
    await api("DELETE", "/rules/to-the-browser");
    await leave(page);
  },

  async "whoever may only read is offered nothing else"() {
    const made = await api("POST", "/tokens", { scopes: ["read"], name: "reader" });
    const page = await visit({}, made.token);
    await page.goto(`${url}/ui/rules/score-drops`);
    assert.equal(await page.getByRole("button", { name: "Save" }).count(), 0);
    assert.equal(await page.getByRole("link", { name: "Tokens" }).count(), 0);
    const letter = await page.goto(`${url}/ui/dead-letters`).then(() => page.locator("td[data-label=Letter] a").first().getAttribute("href"));
    await page.goto(url + letter);
    assert.equal(await page.getByRole("button", { name: "Send again" }).count(), 0);
    await api("DELETE", `/tokens/${made.id}`);
    await page.goto(`${url}/ui/`);
    assert.match(page.url(), /\/ui\/login/);
    await leave(page);
  },

  async "the README's picture is taken"() {
    if (!README_PICTURE) return;
    const page = await visit({ colorScheme: "light", deviceScaleFactor: 1 });
    await page.goto(`${url}/ui/?span=1h`);
    await page.waitForTimeout(1_000);
    await page.screenshot({ path: README_PICTURE });
    await leave(page);
  },
};

// No finding of axe, however small. The pages' own policy keeps scripts out that are not theirs, so it comes in by the driver.
async function accessible(page, where) {
  const source = (await import("node:fs")).readFileSync(axe, "utf8");
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: source });
  const { result } = await session.send("Runtime.evaluate", {
    expression: `axe.run(document, { resultTypes: ["violations"] }).then((found) => JSON.stringify(found.violations
      .map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.html + " " + node.failureSummary)])))`,
    awaitPromise: true,
    returnByValue: true,
  });
  assert.equal(result.value, "[]", `${where}: ${result.value}`);
  await session.detach();
}

let failed = 0;
const only = process.argv[2];
for (const [name, check] of Object.entries(checks)) {
  if (only && !name.includes(only)) continue;
  const began = Date.now();
  try {
    await check();
    console.log(`ok ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
await browser.close();
process.exitCode = failed ? 1 : 0;
