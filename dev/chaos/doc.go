// Program chaos disturbs a whole installation at moments drawn from a seed, while package
// observer checks the rules of docs/SPEC.md. See docs/chaos.md.
package main
