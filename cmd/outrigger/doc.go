// Command outrigger runs one of Outrigger's roles: operator, worker or webhook, and
// the commands of those who install it.
package main
