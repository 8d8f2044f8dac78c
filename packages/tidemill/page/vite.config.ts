import { defineConfig } from "vite";

export default defineConfig({
  base: "/_tidemill/",
  build: {
    outDir: "../src/tidemill/page",
    emptyOutDir: true,
    target: "es2022",
    // The service's content security policy has no inline code, and no data: addresses but for pictures.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // One stylesheet: a second request for a few rules would only delay a view.
    cssCodeSplit: false,
  },
});
