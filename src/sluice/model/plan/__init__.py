"""What a flow computes: streams, the descriptions of operators, and the plan that they make."""
