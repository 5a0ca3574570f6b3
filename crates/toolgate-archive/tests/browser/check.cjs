// Opens a page in a real Chromium and reports what it did: requests, dialogs, scripts, violations.
//
// node check.cjs PAGE [FOLDER]: with a folder, also writes pictures of the page: light, dark, phone.
"use strict";

const path = require("node:path");
const { pathToFileURL } = require("node:url");
const { chromium } = require(path.join(process.env.TOOLGATE_TEST_BROWSER, "node_modules/playwright-core"));

const VIEWS = {
  light: { colorScheme: "light", viewport: { width: 1100, height: 1400 } },
  dark: { colorScheme: "dark", viewport: { width: 1100, height: 1400 } },
  phone: { colorScheme: "light", viewport: { width: 390, height: 844 } },
};

async function look(browser, file, view, picture) {
  const page = await browser.newPage(VIEWS[view]);
  const found = { requests: [], dialogs: 0, messages: [] };
  page.on("request", (request) => found.requests.push(request.url()));
  page.on("dialog", (dialog) => { found.dialogs += 1; dialog.dismiss(); });
  page.on("console", (message) => found.messages.push(message.text()));
  page.on("pageerror", (error) => found.messages.push(String(error)));
  await page.goto(pathToFileURL(file).href, { waitUntil: "load" });
  // Everything that a reader can open is opened, and everything that can be touched is touched.
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  for (const link of await page.locator("summary").all()) await link.hover({ timeout: 2000 }).catch(() => {});
  found.pwned = await page.evaluate(() => typeof window.pwned);
  found.scripts = await page.evaluate(() => document.querySelectorAll("script, iframe, object, embed, svg, form, base, link").length);
  found.handlers = await page.evaluate(() => [...document.querySelectorAll("*")].filter((one) => [...one.attributes].some((a) => a.name.startsWith("on"))).length);
  found.links = await page.evaluate(() => [...document.querySelectorAll("a")].map((one) => one.protocol).filter((p, i, all) => all.indexOf(p) === i));
  found.wider = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  found.background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  if (picture) {
    await page.evaluate(() => {
      document.querySelectorAll("details").forEach((one, at) => { one.open = at < 2; });
      window.scrollTo(0, 0);
    });
    await page.mouse.move(0, 0);
  }
  if (picture) await page.screenshot({ path: path.join(picture, `${view}.png`) });
  await page.close();
  return found;
}

async function main() {
  const [file, picture] = process.argv.slice(2);
  const browser = await chromium.launch({
    executablePath: process.env.TOOLGATE_TEST_CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu"],
  });
  const found = {};
  for (const view of Object.keys(VIEWS)) found[view] = await look(browser, file, view, picture);
  await browser.close();
  console.log(JSON.stringify(found));
}

main().catch((error) => { console.error(error); process.exit(1); });
