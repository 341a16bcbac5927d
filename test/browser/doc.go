// Package browser opens pages in Chromium for tests (build tag browser).
package browser
