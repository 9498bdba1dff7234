from onstream.testing.simgpu.command import main

raise SystemExit(main())
