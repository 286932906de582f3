"""JustOne's messages: parse paths make columns of them."""
