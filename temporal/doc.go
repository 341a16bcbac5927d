// Package temporal is the connection of the operator and the worker to Temporal.
package temporal
