// Empty: lets functions of the runtime be declared without a body, in fork.go.
