import { defineConfig } from "vitest/config";

export default defineConfig({
  build: {
    target: "es2022",
    // The page runs under `default-src 'self'`, which forbids data: addresses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // `npm run mock` beside `npm run dev`.
    proxy: { "/api": "http://127.0.0.1:4747" },
  },
  test: {
    environment: "happy-dom",
    include: ["src/**/*.test.{ts,tsx}"],
  },
});
