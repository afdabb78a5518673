"""CPU algorithms for products, convolutions and attention, as tensor expressions with schedules for a `Machine`."""
