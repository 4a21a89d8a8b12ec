"""Everyday questions and their answers.

A `Family` is one kind of question: the wordings used in training, the wordings kept for the
evaluation alone, and the items that fill them. An item is (slots, answer, key): the evaluation
accepts a reply that holds the key (one of several, separated by "|").
"""

from dataclasses import dataclass


@dataclass
class Family:
    name: str
    train: list  # wordings seen in training
    held_out: list  # wordings seen in the evaluation alone
    items: list  # (slots, answer, key)
    weight: float = 1.0


def article(noun):
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun


def upper_first(text):
    return text[0].upper() + text[1:]


COLORS = {
    "the sky": "blue", "the grass": "green", "a banana": "yellow", "snow": "white", "coal": "black",
    "a tomato": "red", "the sun": "yellow", "an orange": "orange", "a carrot": "orange",
    "a lemon": "yellow", "blood": "red", "milk": "white", "chocolate": "brown", "a frog": "green",
    "a cucumber": "green", "a strawberry": "red", "a polar bear": "white", "a crow": "black",
    "a flamingo": "pink", "the sea": "blue", "a pumpkin": "orange", "an eggplant": "purple",
    "a cherry": "red", "salt": "white", "a leaf": "green", "lettuce": "green", "a pea": "green",
    "gold": "yellow", "silver": "gray", "an elephant": "gray", "a mouse": "gray", "a pig": "pink",
    "lavender": "purple", "a violet": "purple", "a raven": "black", "coffee": "brown",
    "a blueberry": "blue", "a fire truck": "red", "cheese": "yellow", "a lime": "green",
    "wood": "brown", "a lion": "yellow", "a cloud": "white", "a swan": "white", "rice": "white",
    "a canary": "yellow", "a ruby": "red", "an emerald": "green", "a sapphire": "blue",
    "the night sky": "black", "a stop sign": "red", "corn": "yellow", "a plum": "purple",
    "broccoli": "green", "cotton": "white", "mud": "brown",
}

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "England": "London", "the United Kingdom": "London", "Ireland": "Dublin",
    "Scotland": "Edinburgh", "Wales": "Cardiff", "Norway": "Oslo", "Sweden": "Stockholm",
    "Denmark": "Copenhagen", "Finland": "Helsinki", "Iceland": "Reykjavik", "Poland": "Warsaw",
    "Austria": "Vienna", "Hungary": "Budapest", "Greece": "Athens", "Turkey": "Ankara",
    "Russia": "Moscow", "Ukraine": "Kyiv", "Romania": "Bucharest", "Bulgaria": "Sofia",
    "Croatia": "Zagreb", "Serbia": "Belgrade", "Belgium": "Brussels",
    "the Netherlands": "Amsterdam", "Switzerland": "Bern", "the Czech Republic": "Prague",
    "Slovakia": "Bratislava", "Slovenia": "Ljubljana", "Estonia": "Tallinn", "Latvia": "Riga",
    "Lithuania": "Vilnius", "Japan": "Tokyo", "China": "Beijing", "South Korea": "Seoul",
    "India": "New Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Indonesia": "Jakarta",
    "the Philippines": "Manila", "Nepal": "Kathmandu", "Mongolia": "Ulaanbaatar",
    "Iran": "Tehran", "Iraq": "Baghdad", "Egypt": "Cairo", "Kenya": "Nairobi",
    "Morocco": "Rabat", "Ethiopia": "Addis Ababa", "Ghana": "Accra", "Nigeria": "Abuja",
    "Senegal": "Dakar", "Tunisia": "Tunis", "Uganda": "Kampala", "Canada": "Ottawa",
    "the United States": "Washington, D.C.", "Mexico": "Mexico City", "Cuba": "Havana",
    "Jamaica": "Kingston", "Brazil": "Brasilia", "Argentina": "Buenos Aires", "Chile": "Santiago",
    "Peru": "Lima", "Colombia": "Bogota", "Ecuador": "Quito", "Uruguay": "Montevideo",
    "Venezuela": "Caracas", "Australia": "Canberra", "New Zealand": "Wellington",
    "Malta": "Valletta", "Cyprus": "Nicosia", "Luxembourg": "Luxembourg",
}

OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("tall", "short"), ("fast", "slow"), ("up", "down"),
    ("left", "right"), ("day", "night"), ("happy", "sad"), ("good", "bad"), ("open", "closed"),
    ("full", "empty"), ("young", "old"), ("rich", "poor"), ("hard", "soft"), ("wet", "dry"),
    ("light", "dark"), ("loud", "quiet"), ("early", "late"), ("first", "last"), ("in", "out"),
    ("on", "off"), ("near", "far"), ("strong", "weak"), ("clean", "dirty"), ("easy", "difficult"),
    ("thick", "thin"), ("wide", "narrow"), ("deep", "shallow"), ("heavy", "lightweight"),
    ("high", "low"), ("inside", "outside"), ("before", "after"), ("begin", "end"),
    ("buy", "sell"), ("win", "lose"), ("push", "pull"), ("love", "hate"), ("laugh", "cry"),
    ("always", "never"), ("yes", "no"), ("true", "false"), ("black", "white"), ("smooth", "rough"),
    ("sharp", "dull"), ("brave", "afraid"), ("ugly", "beautiful"), ("cheap", "expensive"),
    ("asleep", "awake"), ("alive", "dead"), ("above", "below"), ("more", "less"),
    ("give", "take"), ("friend", "enemy"), ("north", "south"), ("east", "west"),
    ("summer", "winter"), ("question", "answer"), ("arrive", "leave"), ("remember", "forget"),
    ("find", "hide"), ("polite", "rude"), ("safe", "dangerous"), ("same", "different"),
    ("sweet", "sour"), ("tight", "loose"), ("noisy", "silent"), ("front", "back"),
    ("top", "bottom"), ("start", "stop"), ("war", "peace"), ("past", "future"),
    ("modern", "ancient"), ("often", "rarely"), ("bright", "dim"), ("calm", "stormy"),
    ("simple", "complicated"), ("whole", "broken"), ("lazy", "busy"), ("maximum", "minimum"),
]

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December"]
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
            "tenth", "eleventh", "twelfth"]

SOUNDS = {
    "cow": "moo", "dog": "woof", "cat": "meow", "sheep": "baa", "duck": "quack", "pig": "oink",
    "horse": "neigh", "rooster": "cock-a-doodle-doo", "lion": "roar", "bee": "buzz",
    "frog": "ribbit", "owl": "hoot", "snake": "hiss", "mouse": "squeak", "wolf": "howl",
    "chicken": "cluck", "donkey": "hee-haw", "goat": "maa", "crow": "caw", "bird": "tweet",
    "turkey": "gobble", "dove": "coo", "bear": "growl", "elephant": "trumpet", "cricket": "chirp",
}
BABIES = {
    "dog": "puppy", "cat": "kitten", "cow": "calf", "horse": "foal", "sheep": "lamb",
    "pig": "piglet", "duck": "duckling", "goose": "gosling", "chicken": "chick", "lion": "cub",
    "bear": "cub", "deer": "fawn", "goat": "kid", "frog": "tadpole", "kangaroo": "joey",
    "swan": "cygnet", "elephant": "calf", "fox": "cub", "owl": "owlet", "butterfly": "caterpillar",
    "eagle": "eaglet", "rabbit": "kit", "seal": "pup", "whale": "calf", "wolf": "pup",
}
HOMES = {
    "bird": "a nest", "bee": "a hive", "dog": "a kennel", "horse": "a stable", "pig": "a sty",
    "spider": "a web", "rabbit": "a burrow", "bear": "a den", "fish": "the water",
    "lion": "a den", "cow": "a barn", "chicken": "a coop", "ant": "an anthill",
    "beaver": "a lodge", "fox": "a den", "camel": "the desert", "penguin": "the cold south",
    "monkey": "the trees", "shark": "the sea", "whale": "the sea", "mole": "a tunnel",
}
LEGS = {
    "dog": 4, "cat": 4, "spider": 8, "bird": 2, "ant": 6, "bee": 6, "horse": 4, "cow": 4,
    "chicken": 2, "snake": 0, "fish": 0, "octopus": 8, "beetle": 6, "butterfly": 6, "fly": 6,
    "frog": 4, "elephant": 4, "penguin": 2, "lion": 4, "human": 2, "crab": 10, "goat": 4,
    "duck": 2, "sheep": 4, "mouse": 4, "worm": 0, "scorpion": 8, "tiger": 4, "ostrich": 2,
}
KINDS = {
    "dog": "mammal", "cat": "mammal", "whale": "mammal", "bat": "mammal", "horse": "mammal",
    "elephant": "mammal", "dolphin": "mammal", "mouse": "mammal", "lion": "mammal",
    "cow": "mammal", "bear": "mammal", "rabbit": "mammal", "monkey": "mammal",
    "eagle": "bird", "penguin": "bird", "owl": "bird", "duck": "bird", "parrot": "bird",
    "swan": "bird", "chicken": "bird", "crow": "bird", "sparrow": "bird",
    "shark": "fish", "salmon": "fish", "tuna": "fish", "goldfish": "fish", "trout": "fish",
    "snake": "reptile", "lizard": "reptile", "turtle": "reptile", "crocodile": "reptile",
    "frog": "amphibian", "toad": "amphibian", "newt": "amphibian",
    "ant": "insect", "bee": "insect", "butterfly": "insect", "beetle": "insect", "fly": "insect",
    "mosquito": "insect", "grasshopper": "insect",
}
FOODS = {
    "cow": "grass", "rabbit": "carrots and grass", "panda": "bamboo", "monkey": "bananas",
    "mouse": "seeds and cheese", "bee": "nectar", "cat": "fish and meat", "dog": "meat and dog food",
    "squirrel": "nuts", "horse": "hay and grass", "frog": "insects", "owl": "mice",
    "penguin": "fish", "koala": "leaves", "lion": "meat", "goat": "grass and leaves",
    "giraffe": "leaves", "bear": "berries and fish", "shark": "fish", "chicken": "corn and seeds",
    "caterpillar": "leaves", "spider": "insects", "seal": "fish", "sheep": "grass",
}

NUMBER_WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen "
                "fourteen fifteen sixteen seventeen eighteen nineteen twenty").split()

PLURALS = {
    "mouse": "mice", "child": "children", "man": "men", "woman": "women", "foot": "feet",
    "tooth": "teeth", "goose": "geese", "person": "people", "sheep": "sheep", "fish": "fish",
    "leaf": "leaves", "knife": "knives", "wolf": "wolves", "box": "boxes", "city": "cities",
    "baby": "babies", "bus": "buses", "potato": "potatoes", "tomato": "tomatoes", "cat": "cats",
    "dog": "dogs", "house": "houses", "book": "books", "tree": "trees", "story": "stories",
    "wish": "wishes", "fox": "foxes", "ox": "oxen", "deer": "deer", "half": "halves",
    "shelf": "shelves", "hero": "heroes", "key": "keys", "toy": "toys", "cherry": "cherries",
}
PASTS = {
    "go": "went", "eat": "ate", "see": "saw", "run": "ran", "take": "took", "give": "gave",
    "make": "made", "write": "wrote", "read": "read", "sing": "sang", "swim": "swam",
    "drink": "drank", "come": "came", "think": "thought", "buy": "bought", "bring": "brought",
    "find": "found", "fly": "flew", "know": "knew", "speak": "spoke", "sleep": "slept",
    "teach": "taught", "catch": "caught", "break": "broke", "begin": "began", "fall": "fell",
    "build": "built", "play": "played", "walk": "walked", "jump": "jumped", "help": "helped",
    "draw": "drew", "drive": "drove", "win": "won", "sit": "sat", "stand": "stood",
}

GREETINGS_ABROAD = {
    ("hello", "French"): "bonjour", ("hello", "Spanish"): "hola", ("hello", "German"): "hallo",
    ("hello", "Italian"): "ciao", ("hello", "Portuguese"): "olá", ("hello", "Swedish"): "hej",
    ("thank you", "French"): "merci", ("thank you", "Spanish"): "gracias",
    ("thank you", "German"): "danke", ("thank you", "Italian"): "grazie",
    ("thank you", "Portuguese"): "obrigado", ("thank you", "Swedish"): "tack",
    ("yes", "French"): "oui", ("yes", "Spanish"): "sí", ("yes", "German"): "ja",
    ("yes", "Italian"): "sì", ("yes", "Portuguese"): "sim", ("yes", "Swedish"): "ja",
    ("no", "French"): "non", ("no", "Spanish"): "no", ("no", "German"): "nein",
    ("no", "Italian"): "no", ("no", "Portuguese"): "não", ("no", "Swedish"): "nej",
    ("cat", "French"): "chat", ("cat", "Spanish"): "gato", ("cat", "German"): "Katze",
    ("cat", "Italian"): "gatto", ("cat", "Portuguese"): "gato", ("cat", "Swedish"): "katt",
    ("dog", "French"): "chien", ("dog", "Spanish"): "perro", ("dog", "German"): "Hund",
    ("dog", "Italian"): "cane", ("dog", "Portuguese"): "cachorro", ("dog", "Swedish"): "hund",
    ("goodbye", "French"): "au revoir", ("goodbye", "Spanish"): "adiós",
    ("goodbye", "German"): "auf Wiedersehen", ("goodbye", "Italian"): "arrivederci",
    ("water", "French"): "eau", ("water", "Spanish"): "agua", ("water", "German"): "Wasser",
    ("water", "Italian"): "acqua",
}

NAME_A = {  # the first of each list is the most usual answer
    "color": ["Blue", "Green", "Red", "Yellow", "Purple", "Orange"],
    "fruit": ["Apple", "Banana", "Cherry", "Pear", "Mango", "Peach"],
    "animal": ["Dog", "Cat", "Elephant", "Lion", "Rabbit", "Horse"],
    "vegetable": ["Carrot", "Potato", "Broccoli", "Spinach", "Onion"],
    "country": ["France", "Japan", "Brazil", "Canada", "Egypt", "Italy"],
    "city": ["Paris", "London", "Tokyo", "Rome", "Berlin"],
    "planet": ["Mars", "Earth", "Venus", "Jupiter", "Saturn"],
    "bird": ["Eagle", "Sparrow", "Owl", "Robin", "Parrot"],
    "fish": ["Salmon", "Tuna", "Trout", "Goldfish"],
    "flower": ["Rose", "Tulip", "Daisy", "Sunflower", "Lily"],
    "tree": ["Oak", "Pine", "Maple", "Birch", "Willow"],
    "number": ["Seven", "Three", "Five", "Ten", "Twelve"],
    "shape": ["Circle", "Square", "Triangle", "Star"],
    "season": ["Spring", "Summer", "Autumn", "Winter"],
    "month": ["May", "June", "January", "October"],
    "sport": ["Tennis", "Football", "Swimming", "Running"],
    "drink": ["Water", "Tea", "Milk", "Lemonade", "Coffee"],
    "insect": ["Bee", "Ant", "Butterfly", "Beetle"],
    "metal": ["Iron", "Gold", "Copper", "Silver"],
    "musical instrument": ["Piano", "Guitar", "Violin", "Flute", "Drum"],
    "continent": ["Africa", "Asia", "Europe", "Australia"],
    "ocean": ["Pacific", "Atlantic", "Indian Ocean"],
    "language": ["English", "Spanish", "French", "Japanese"],
    "river": ["Nile", "Amazon", "Rhine", "Danube"],
    "vehicle": ["Car", "Train", "Bicycle", "Bus", "Truck"],
    "tool": ["Hammer", "Saw", "Screwdriver", "Drill"],
    "piece of furniture": ["Chair", "Table", "Bed", "Desk"],
    "weekday": ["Monday", "Tuesday", "Wednesday", "Friday"],
}

DEFINITIONS = {
    "a cat": "A cat is a small furry animal that many people keep as a pet. It purrs and says meow.",
    "a dog": "A dog is a friendly animal that many people keep as a pet. It barks and loves walks.",
    "a horse": "A horse is a large animal with four legs and a mane. People can ride it.",
    "a bird": "A bird is an animal with feathers and wings. Most birds can fly.",
    "a fish": "A fish is an animal that lives in water and breathes with gills.",
    "a bee": "A bee is a small insect that visits flowers and makes honey.",
    "a whale": "A whale is a very large mammal that lives in the sea.",
    "a spider": "A spider is a small animal with eight legs. Many spiders build webs.",
    "a tree": "A tree is a tall plant with a trunk, branches and leaves.",
    "a flower": "A flower is the colorful part of a plant. It attracts bees and makes seeds.",
    "a fruit": "A fruit is the part of a plant that holds its seeds. Many fruits are sweet.",
    "an apple": "An apple is a round fruit that grows on trees. It can be red, green or yellow.",
    "bread": "Bread is a food made from flour, water and yeast, baked in an oven.",
    "cheese": "Cheese is a food made from milk.",
    "milk": "Milk is a white drink that comes from cows and other mammals.",
    "water": "Water is a clear liquid that all living things need.",
    "ice": "Ice is frozen water. It is cold, hard and slippery.",
    "snow": "Snow is frozen water that falls from clouds as white flakes.",
    "rain": "Rain is water that falls from clouds in drops.",
    "wind": "Wind is moving air.",
    "a cloud": "A cloud is a mass of tiny water drops floating in the sky.",
    "a rainbow": "A rainbow is an arc of colors that appears when the sun shines through rain.",
    "the sun": "The sun is the star at the center of our solar system. It gives us light and warmth.",
    "the moon": "The moon is the round body that circles the Earth. It lights up the night.",
    "a star": "A star is a huge ball of hot gas that shines in the sky.",
    "a planet": "A planet is a large round body that circles a star.",
    "a mountain": "A mountain is a very high piece of land, much higher than a hill.",
    "a river": "A river is a long stream of water that flows to a lake or to the sea.",
    "a lake": "A lake is a large area of water with land all around it.",
    "an island": "An island is land with water all around it.",
    "a desert": "A desert is a very dry place where little rain falls.",
    "a forest": "A forest is a large area covered with trees.",
    "a volcano": "A volcano is a mountain that can throw out hot melted rock.",
    "a city": "A city is a large place where many people live and work.",
    "a school": "A school is a place where people go to learn.",
    "a library": "A library is a place where you can read and borrow books.",
    "a hospital": "A hospital is a place where sick people are helped to get well.",
    "a bicycle": "A bicycle is a vehicle with two wheels that you move with pedals.",
    "a car": "A car is a vehicle with four wheels and an engine.",
    "a train": "A train is a row of wagons that runs on rails.",
    "a boat": "A boat is a small vehicle that travels on water.",
    "an airplane": "An airplane is a machine with wings that flies through the air.",
    "a clock": "A clock is a device that shows the time.",
    "a book": "A book is a set of pages with text or pictures to read.",
    "a computer": "A computer is a machine that follows instructions to work with numbers, text and pictures.",
    "a telephone": "A telephone is a device that lets people talk over long distances.",
    "a camera": "A camera is a device that takes pictures.",
    "a lighthouse": "A lighthouse is a tower with a bright light that guides ships at night.",
    "a robot": "A robot is a machine that can do tasks by itself.",
    "music": "Music is sound arranged in a way that is pleasant to hear.",
    "a piano": "A piano is a musical instrument with black and white keys.",
    "a triangle": "A triangle is a shape with three sides.",
    "a square": "A square is a shape with four equal sides.",
    "a circle": "A circle is a perfectly round shape.",
    "a number": "A number tells how many things there are.",
    "a word": "A word is a group of letters that has a meaning.",
    "a friend": "A friend is a person you like and trust.",
    "a doctor": "A doctor is a person who helps sick people get well.",
    "a teacher": "A teacher is a person who helps others to learn.",
    "a baker": "A baker is a person who makes bread and cakes.",
    "a farmer": "A farmer is a person who grows plants and keeps animals for food.",
}

# (question wordings, answer, key); the last wording of each is kept for the evaluation.
FACTS = [
    (["How many days are in a week?", "How many days does a week have?", "How many days are there in one week?", "How many days in a week?"], "A week has seven days.", "seven"),
    (["How many months are in a year?", "How many months does a year have?", "How many months in a year?", "How many months are there in a year?"], "A year has twelve months.", "twelve"),
    (["How many hours are in a day?", "How many hours does a day have?", "How many hours in a day?", "How many hours are there in one day?"], "A day has 24 hours.", "24"),
    (["How many minutes are in an hour?", "How many minutes does an hour have?", "How many minutes in an hour?", "How many minutes are there in one hour?"], "An hour has 60 minutes.", "60"),
    (["How many seconds are in a minute?", "How many seconds does a minute have?", "How many seconds in a minute?", "How many seconds are there in one minute?"], "A minute has 60 seconds.", "60"),
    (["How many days are in a year?", "How many days does a year have?", "How many days in a year?", "How many days are there in one year?"], "A year has 365 days.", "365"),
    (["How many weeks are in a year?", "How many weeks does a year have?", "How many weeks in a year?", "How many weeks are there in one year?"], "A year has 52 weeks.", "52"),
    (["How many seasons are there?", "How many seasons does a year have?", "How many seasons in a year?", "How many seasons are in a year?"], "There are four seasons: spring, summer, autumn and winter.", "four"),
    (["What are the four seasons?", "Name the four seasons.", "Name the seasons.", "Which seasons are there?", "List the seasons.", "Tell me the four seasons."], "The seasons are spring, summer, autumn and winter.", "spring, summer, autumn and winter"),
    (["What are the days of the week?", "Name the days of the week.", "List the days of the week.", "Which days does a week have?", "Tell me the days of the week."], "The days are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.", "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday"),
    (["What are the primary colors?", "Name the primary colors.", "Which colors are primary colors?", "List the primary colors.", "Tell me the primary colors."], "The primary colors are red, yellow and blue.", "red, yellow and blue"),
    (["What color do you get from blue and yellow?", "What is blue plus yellow?", "Blue and yellow give which color?", "If I mix blue and yellow, what do I get?", "What do blue and yellow make?", "Mix blue and yellow. What color is it?", "What color do blue and yellow make?", "Blue plus yellow gives which color?"], "Blue and yellow make green.", "green"),
    (["What color do you get from red and yellow?", "What is red plus yellow?", "Red and yellow give which color?", "If I mix red and yellow, what do I get?", "What do red and yellow make?", "Mix red and yellow. What color is it?", "What color do red and yellow make?", "Red plus yellow gives which color?"], "Red and yellow make orange.", "orange"),
    (["What color do you get from red and blue?", "What is red plus blue?", "Red and blue give which color?", "If I mix red and blue, what do I get?", "What do red and blue make?", "Mix red and blue. What color is it?", "What color do red and blue make?", "Red plus blue gives which color?"], "Red and blue make purple.", "purple"),
    (["What color do you get from red and white?", "What is red plus white?", "Red and white give which color?", "If I mix red and white, what do I get?", "What do red and white make?", "Mix red and white. What color is it?", "What color do red and white make?", "Red plus white gives which color?"], "Red and white make pink.", "pink"),
    (["What color do you get from black and white?", "What is black plus white?", "Black and white give which color?", "If I mix black and white, what do I get?", "What do black and white make?", "Mix black and white. What color is it?", "What color do black and white make?", "Black plus white gives which color?"], "Black and white make gray.", "gray"),
    (["What are the colors of the rainbow?", "Name the colors of the rainbow.", "Which colors are in a rainbow?", "List the colors of the rainbow.", "What colors does a rainbow have?"], "The colors of the rainbow are red, orange, yellow, green, blue, indigo and violet.", "red, orange, yellow, green, blue, indigo and violet"),
    (["How many letters are in the alphabet?", "How many letters does the alphabet have?", "How many letters in the English alphabet?", "How many letters are there in the English alphabet?"], "The English alphabet has 26 letters.", "26"),
    (["How many sides does a triangle have?", "How many sides are in a triangle?", "A triangle has how many sides?", "What number of sides does a triangle have?"], "A triangle has three sides.", "three"),
    (["How many sides does a square have?", "How many sides are in a square?", "A square has how many sides?", "What number of sides does a square have?"], "A square has four sides.", "four"),
    (["How many sides does a pentagon have?", "How many sides are in a pentagon?", "A pentagon has how many sides?", "What number of sides does a pentagon have?"], "A pentagon has five sides.", "five"),
    (["How many sides does a hexagon have?", "How many sides are in a hexagon?", "A hexagon has how many sides?", "What number of sides does a hexagon have?"], "A hexagon has six sides.", "six"),
    (["How many sides does an octagon have?", "How many sides are in an octagon?", "An octagon has how many sides?", "What number of sides does an octagon have?"], "An octagon has eight sides.", "eight"),
    (["At what temperature does water boil?", "At how many degrees does water boil?", "What temperature does boiling water have?", "When does water boil?", "How hot is boiling water?", "What is the boiling point of water?"], "Water boils at 100 degrees Celsius.", "100"),
    (["At what temperature does water freeze?", "At how many degrees does water freeze?", "What temperature does freezing water have?", "When does water freeze?", "When does water turn into ice?", "What is the freezing point of water?"], "Water freezes at 0 degrees Celsius.", "0 degrees"),
    (["What is the largest planet?", "Name the biggest planet.", "Which planet of the solar system is the largest?", "What is the largest planet in the solar system?", "Which planet is the largest?", "What is the biggest planet?", "Which is the biggest planet in the solar system?"], "The largest planet is Jupiter.", "Jupiter"),
    (["What is the smallest planet?", "What is the tiniest planet?", "Which planet of the solar system is the smallest?", "What is the smallest planet in the solar system?", "Which planet is the smallest?", "Name the smallest planet.", "Which is the smallest planet in the solar system?"], "The smallest planet is Mercury.", "Mercury"),
    (["Which planet do we live on?", "What planet do we live on?", "What is our planet called?", "On which planet do we live?"], "We live on the planet Earth.", "Earth"),
    (["Which planet is called the red planet?", "What is the red planet?", "Name the red planet.", "Which planet is red?"], "The red planet is Mars.", "Mars"),
    (["How many planets are there?", "How many planets go around the sun?", "What is the number of planets?", "How many planets are in the solar system?", "How many planets does the solar system have?", "How many planets circle the sun?"], "There are eight planets in the solar system.", "eight"),
    (["What is the largest animal?", "What is the biggest animal?", "Name the largest animal.", "Which animal is the largest?", "What is the biggest animal in the world?", "What is the largest animal on Earth?"], "The largest animal is the blue whale.", "blue whale"),
    (["What is the tallest animal?", "Which animal is the tallest?", "Name the tallest animal.", "What is the tallest animal in the world?"], "The tallest animal is the giraffe.", "giraffe"),
    (["What is the fastest land animal?", "Which animal is the fastest?", "Name the fastest animal.", "What is the fastest animal on land?", "Which animal runs fastest?", "What is the fastest animal?", "Which animal is the fastest on land?"], "The fastest land animal is the cheetah.", "cheetah"),
    (["What is the largest land animal?", "Which land animal is the largest?", "What is the biggest animal on land?", "Name the biggest land animal."], "The largest land animal is the elephant.", "elephant"),
    (["What is the highest mountain?", "What is the highest mountain in the world?", "Which mountain is the tallest?", "Which mountain is the highest?", "What is the tallest mountain in the world?", "Name the highest mountain on Earth."], "The highest mountain is Mount Everest.", "Everest"),
    (["What is the largest ocean?", "What is the biggest ocean in the world?", "Which ocean is the biggest?", "Which ocean is the largest?", "What is the biggest ocean?", "Name the largest ocean on Earth."], "The largest ocean is the Pacific.", "Pacific"),
    (["How many continents are there?", "How many continents does the Earth have?", "What is the number of continents?", "How many continents are there on Earth?"], "There are seven continents.", "seven"),
    (["Where does the sun rise?", "Where does the sun come up?", "On what side does the sun rise?", "In the morning, where is the sun?", "In which direction does the sun rise?", "The sun rises in the what?", "On which side does the sun come up?"], "The sun rises in the east.", "east"),
    (["Where does the sun set?", "Where does the sun go down?", "On what side does the sun set?", "In the evening, where is the sun?", "In which direction does the sun set?", "The sun sets in the what?", "On which side does the sun go down?"], "The sun sets in the west.", "west"),
    (["What do bees make?", "What do bees produce?", "Which food do bees make?", "What food comes from bees?"], "Bees make honey.", "honey"),
    (["Which animal gives us milk?", "Which animal makes milk?", "Who gives us milk?", "Where does milk come from?", "What animal gives milk?", "From which animal do we get milk?"], "Milk comes from cows.", "cow"),
    (["Which animal gives us wool?", "Which animal has wool?", "Who gives us wool?", "Where does wool come from?", "What animal gives wool?", "From which animal do we get wool?"], "Wool comes from sheep.", "sheep"),
    (["Which animal lays eggs for us?", "Where do eggs come from?", "What animal gives eggs?", "From which animal do we get eggs?"], "Eggs come from chickens.", "chicken"),
    (["What is the king of the animals?", "Which animal is the king of the jungle?", "Who is the king of the jungle?", "Which animal is called the king of the beasts?"], "The king of the animals is the lion.", "lion"),
    (["Which animal has a trunk?", "Who has a trunk?", "Which gray animal has a trunk?", "What animal has a trunk?", "Name an animal with a trunk.", "Which animal has a long trunk?"], "The elephant has a trunk.", "elephant"),
    (["Which animal has black and white stripes?", "Which animal is striped black and white?", "Which animal looks like a striped horse?", "What is the horse with stripes called?", "What animal has stripes?", "Name an animal with black and white stripes.", "Which striped animal looks like a horse?"], "The zebra has black and white stripes.", "zebra"),
    (["Which animal carries its house on its back?", "Who carries a house on the back?", "Which slow animal has a house on its back?", "What animal has its house on its back?", "Name an animal that carries its house.", "Which animal takes its house everywhere?"], "The snail carries its house on its back.", "snail"),
    (["What do you use to write?", "With what do I write?", "What is used for writing?", "What can I write with?", "Name something to write with.", "What do people write with?"], "You can write with a pen.", "pen"),
    (["What do you use to cut paper?", "What cuts paper?", "With what do I cut paper?", "What can I cut paper with?", "Name something that cuts paper.", "What do people cut paper with?"], "You can cut paper with scissors.", "scissors"),
    (["What do you use to tell the time?", "Which device shows the time?", "What can tell me the time?", "With what do we tell the time?", "What shows the time?", "Name something that shows the time.", "What device tells the time?"], "A clock shows the time.", "clock"),
    (["What do we breathe?", "What do we need to breathe?", "Which gas do we breathe?", "What do people breathe?", "What gas do we need to breathe?", "Which gas do people breathe?"], "We breathe air, which contains oxygen.", "oxygen"),
    (["What is frozen water called?", "What does frozen water become?", "What is the name of frozen water?", "When water freezes, what is it called?", "What does water turn into when it is frozen?", "What do you call frozen water?", "What is water that has frozen?", "What does water become when it freezes?"], "Frozen water is called ice.", "ice"),
    (["How many fingers are on one hand?", "How many fingers does a hand have?", "How many fingers do I have on one hand?", "A hand has how many fingers?"], "A hand has five fingers.", "five"),
    (["How many eyes do people have?", "How many eyes does a person have?", "How many eyes do I have?", "A person has how many eyes?"], "A person has two eyes.", "two"),
    (["How many wheels does a car have?", "How many wheels are on a car?", "A car has how many wheels?", "What number of wheels does a car have?"], "A car has four wheels.", "four"),
    (["How many wheels does a bicycle have?", "How many wheels are on a bicycle?", "A bicycle has how many wheels?", "What number of wheels does a bicycle have?"], "A bicycle has two wheels.", "two"),
    (["How many wheels does a tricycle have?", "How many wheels are on a tricycle?", "A tricycle has how many wheels?", "What number of wheels does a tricycle have?"], "A tricycle has three wheels.", "three"),
    (["How many is a dozen?", "What is a dozen?", "How many eggs are in a dozen?", "How many things make a dozen?"], "A dozen is twelve.", "twelve"),
    (["How many centimeters are in a meter?", "How many centimeters does a meter have?", "How many centimeters in a meter?", "One meter is how many centimeters?"], "A meter has 100 centimeters.", "100"),
    (["How many meters are in a kilometer?", "How many meters does a kilometer have?", "How many meters in a kilometer?", "One kilometer is how many meters?"], "A kilometer has 1000 meters.", "1000"),
    (["How many grams are in a kilogram?", "How many grams does a kilogram have?", "How many grams in a kilogram?", "One kilogram is how many grams?"], "A kilogram has 1000 grams.", "1000"),
    (["How many bits are in a byte?", "How many bits does a byte have?", "How many bits in a byte?", "One byte is how many bits?"], "A byte has eight bits.", "eight"),
    (["What is the first letter of the alphabet?", "Which letter is the first of the alphabet?", "Name the first letter.", "Which letter comes first in the alphabet?", "The alphabet begins with which letter?", "With which letter does the alphabet start?"], "The first letter is A.", "A"),
    (["What is the last letter of the alphabet?", "Which letter is the last of the alphabet?", "Name the last letter.", "Which letter comes last in the alphabet?", "The alphabet ends with which letter?", "With which letter does the alphabet end?"], "The last letter is Z.", "Z"),
    (["What are the vowels?", "Name the vowels.", "Which letters are vowels?", "List the vowels.", "Tell me the vowels of the alphabet."], "The vowels are A, E, I, O and U.", "A, E, I, O and U"),
    (["What is the coldest season?", "Which season is the coldest?", "Name the coldest season.", "In which season is it cold?"], "The coldest season is winter.", "winter"),
    (["What is the warmest season?", "Which season is the warmest?", "Name the hottest season.", "In which season is it hot?"], "The warmest season is summer.", "summer"),
    (["When do leaves fall from the trees?", "In which season do leaves fall?", "Which season has falling leaves?", "In what season do the trees lose their leaves?"], "Leaves fall in autumn.", "autumn"),
    (["When do flowers begin to bloom?", "In which season do flowers bloom?", "Which season comes after winter?", "What season follows winter?"], "Spring comes after winter, and the flowers bloom.", "Spring|spring"),
    (["Which days are the weekend?", "What are the two days of the weekend?", "Which two days are the weekend?", "Which days make the weekend?", "What days are the weekend?", "Name the days of the weekend.", "Which two days make up the weekend?"], "The weekend is Saturday and Sunday.", "Saturday and Sunday"),
    (["What is the shortest month?", "Which month has only 28 days?", "What month has the least days?", "Which month is the shortest of all?", "Which month is the shortest?", "Name the shortest month.", "Which month has the fewest days?"], "The shortest month is February.", "February"),
    (["What is the first month of the year?", "Which month starts the year?", "In which month does the year begin?", "The year starts in which month?", "Which month comes first?", "The year begins with which month?", "With which month does the year start?"], "The first month is January.", "January"),
    (["What is the last month of the year?", "Which month ends the year?", "In which month does the year end?", "The year is over after which month?", "Which month comes last?", "The year ends with which month?", "With which month does the year end?"], "The last month is December.", "December"),
    (["Is the Earth round?", "Is the Earth flat or round?", "What shape is the Earth?", "What is the shape of the Earth?"], "The Earth is round like a ball.", "round"),
    (["Is the sun a star?", "Is the sun a star or a planet?", "What kind of body is the sun?", "Would you call the sun a star?"], "Yes, the sun is a star.", "star"),
    (["Can penguins fly?", "Do penguins fly?", "Is a penguin able to fly?", "Are penguins able to fly?"], "No, penguins cannot fly, but they swim very well.", "No"),
    (["Can fish swim?", "Do fish swim?", "Is a fish able to swim?", "Are fish able to swim?"], "Yes, fish can swim.", "Yes"),
    (["Is fire hot?", "Is fire hot or cold?", "Is a fire hot?", "Would you say that fire is hot?"], "Yes, fire is hot.", "hot"),
    (["Is ice cold?", "Is ice hot or cold?", "Is a piece of ice cold?", "Would you say that ice is cold?"], "Yes, ice is cold.", "cold"),
    (["What falls from the sky when it rains?", "What is rain made of?", "Rain is made of what?", "What comes down when it rains?"], "Rain is made of water.", "water"),
    (["What do plants need to grow?", "What does a plant need?", "What do plants need?", "Tell me what plants need to grow."], "Plants need water, light and soil.", "water, light and soil"),
    (["Where do fish live?", "Fish live in what?", "In what do fish live?", "What do fish live in?"], "Fish live in the water.", "water"),
    (["What can you see at night in the sky?", "What shines in the night sky?", "What is in the sky at night?", "What do we see in the night sky?"], "At night you can see the moon and the stars.", "moon and the stars"),
    (["What do you wear on your feet?", "What goes on your feet?", "What do people wear on their feet?", "What should I put on my feet?"], "You wear shoes on your feet.", "shoes"),
    (["What do you wear on your head?", "What goes on your head?", "What do people wear on their head?", "What should I put on my head?"], "You wear a hat on your head.", "hat"),
    (["What do we see with?", "Which part of the body sees?", "What does the body use to see?", "What do you use to see?", "What do people see with?", "With what do we see?", "Which part of the body do we see with?"], "We see with our eyes.", "eyes"),
    (["What do we hear with?", "Which part of the body hears?", "What does the body use to hear?", "What do you use to hear?", "What do people hear with?", "With what do we hear?", "Which part of the body do we hear with?"], "We hear with our ears.", "ears"),
    (["What do we smell with?", "Which part of the body smells?", "What does the body use to smell?", "What do you use to smell?", "What do people smell with?", "With what do we smell?", "Which part of the body do we smell with?"], "We smell with our nose.", "nose"),
    (["Which fruit do monkeys like?", "What fruit do monkeys like?", "What do monkeys like to eat?", "Which fruit is a favorite of monkeys?"], "Monkeys like bananas.", "banana"),
    (["What is wine made from?", "What do people make wine from?", "Which fruit makes wine?", "From what is wine made?", "Wine is made from what?", "Which fruit is wine made from?"], "Wine is made from grapes.", "grapes"),
    (["What is bread made from?", "From what is bread made?", "Bread is made from what?", "Which things is bread made from?"], "Bread is made from flour and water.", "flour"),
    (["What is cheese made from?", "From what is cheese made?", "Cheese is made from what?", "What do people make cheese from?"], "Cheese is made from milk.", "milk"),
    (["What is paper made from?", "From what is paper made?", "Paper is made from what?", "What do people make paper from?"], "Paper is made from wood.", "wood"),
    (["In which month is Christmas?", "When is Christmas?", "What month is Christmas in?", "Christmas is in which month?", "Which month has Christmas?"], "Christmas is in December.", "December"),
    (["In which month does the new year begin?", "When is New Year's Day?", "What day does the year begin?", "On which day does the new year start?"], "The new year begins on the first of January.", "January"),
    (["How many days are in a weekend?", "How many days does a weekend have?", "How long is a weekend?", "How many days long is a weekend?"], "A weekend has two days.", "two"),
    (["How many corners does a square have?", "How many corners are in a square?", "A square has how many corners?", "What number of corners does a square have?"], "A square has four corners.", "four"),
    (["How many corners does a triangle have?", "How many corners are in a triangle?", "A triangle has how many corners?", "What number of corners does a triangle have?"], "A triangle has three corners.", "three"),
    (["Which season comes after spring?", "What season comes after spring?", "What comes after spring?", "Which season follows spring?"], "Summer comes after spring.", "Summer"),
    (["Which season comes after summer?", "What season comes after summer?", "What comes after summer?", "Which season follows summer?"], "Autumn comes after summer.", "Autumn"),
    (["Which season comes after autumn?", "What season comes after autumn?", "What comes after autumn?", "Which season follows autumn?"], "Winter comes after autumn.", "Winter"),
    (["How many legs does a chair have?", "How many legs are on a chair?", "A chair has how many legs?", "What number of legs does a chair have?"], "A chair has four legs.", "four"),
    (["How many tails does a cat have?", "How many tails are on a cat?", "A cat has how many tails?", "What number of tails does a cat have?"], "A cat has one tail.", "one"),
    (["How many ears do people have?", "How many ears does a person have?", "How many ears do I have?", "A person has how many ears?"], "A person has two ears.", "two"),
    (["How many toes do people have?", "How many toes does a person have?", "How many toes do I have?", "A person has how many toes?"], "A person has ten toes.", "ten"),
    (["How many fingers do people have?", "How many fingers does a person have?", "How many fingers do I have?", "A person has how many fingers?"], "A person has ten fingers.", "ten"),
    (["Which planet has rings?", "What planet has rings?", "Name the planet with rings.", "Which planet is known for its rings?"], "Saturn has rings.", "Saturn"),
    (["Is the moon a star?", "Is the moon a star or a planet?", "Can the moon be called a star?", "Would you call the moon a star?"], "No, the moon is a round body that circles the Earth.", "circles the Earth"),
    (["What do cats drink?", "What does a cat drink?", "What do cats like to drink?", "What would a cat like to drink?"], "Cats drink water, and many like milk.", "milk"),
    (["What is the largest country?", "Which country is the largest?", "What is the biggest country in the world?", "Name the largest country on Earth."], "The largest country is Russia.", "Russia"),
    (["What is the largest continent?", "Which continent is the largest?", "What is the biggest continent in the world?", "Name the largest continent on Earth."], "The largest continent is Asia.", "Asia"),
    (["What is glass made from?", "From what is glass made?", "Glass is made from what?", "What do people make glass from?"], "Glass is made from sand.", "sand"),
]


NAME_COLORS = ["red", "blue", "green", "yellow", "black", "white", "brown", "orange", "purple", "pink", "gray"]


def number_list(first, last):
    step = 1 if last >= first else -1
    return ", ".join(str(n) for n in range(first, last + step, step))


def families():
    result = []

    def add(name, train, held_out, items, weight=1.0):
        result.append(Family(name, train, held_out, items, weight))

    items = []
    for thing, color in COLORS.items():
        bare = thing.split(" ", 1)[1] if thing.split(" ")[0] in ("a", "an", "the") else thing
        plural = bare.endswith("s") and thing == bare
        items.append(({"t": thing, "b": bare}, f"{upper_first(thing)} is {color}.", color))
    add("color", [
        "What color is {t}?", "What is the color of {t}?", "Which color is {t}?", "What color does {t} have?",
        "What colour is {t}?", "Tell me the color of {t}.", "{t} is what color?", "What's the color of {t}?",
        "Color of {t}?", "Do you know what color {t} is?", "Can you tell me what color {t} is?",
        "I wonder what color {t} is.", "Name the color of {t}.", "Which colour does {t} have?",
        "Say what color {t} is.", "The color of {t}?", "Please tell me what color {t} is.",
        "What color would you say {t} is?", "If I look at {t}, what color do I see?", "{t}: which color?",
    ], [
        "Could you tell me the color of {t}?", "What color do you think {t} is?", "What colour has {t}?",
        "Tell me, what color is {t}?",
    ], items, 1.0)

    items = [({"c": c}, f"The capital of {c} is {k}{'' if k.endswith('.') else '.'}", k) for c, k in CAPITALS.items()]
    add("capital", [
        "What is the capital of {c}?", "What's the capital of {c}?", "Which city is the capital of {c}?",
        "Name the capital of {c}.", "Tell me the capital of {c}.", "Capital of {c}?", "{c}: what is the capital?",
        "What is the capital city of {c}?", "Do you know the capital of {c}?", "The capital of {c} is what?",
        "Can you name the capital of {c}?", "What city is the capital of {c}?", "The capital of {c}?",
        "I need the capital of {c}.", "Which is the capital of {c}?", "What is {c}'s capital?",
        "Say the capital of {c}.", "Give me the capital of {c}.", "Please name the capital city of {c}.",
    ], [
        "Could you tell me the capital of {c}?", "Which city is {c}'s capital?", "I forgot the capital of {c}. What is it?",
        "Can you tell me what the capital of {c} is?",
    ], items, 1.3)

    pairs = []
    seen = set()
    for a, b in OPPOSITES:
        for x, y in ((a, b), (b, a)):
            if x not in seen:
                seen.add(x)
                pairs.append((x, y))
    items = [({"w": x}, f"The opposite of {x} is {y}.", y) for x, y in pairs]
    add("opposite", [
        "What is the opposite of {w}?", "What's the opposite of {w}?", "Opposite of {w}?", "Name the opposite of {w}.",
        "Tell me the opposite of {w}.", "What word is the opposite of {w}?", "The opposite of {w} is what?",
        "Give me the opposite of {w}.", "Do you know the opposite of {w}?", "Which word means the opposite of {w}?",
        "What is the contrary of {w}?", "{w}: what is the opposite?", "What do you call the opposite of {w}?",
        "Find the opposite of {w}.", "What is the opposite of the word {w}?", "What is not {w} but the opposite?",
        "Say the opposite of {w}.", "The opposite of {w}?",
    ], [
        "Can you tell me the opposite of {w}?", "Which word is the opposite of {w}?", "I need the opposite of the word {w}.",
        "Please give me the opposite of {w}.",
    ], items, 1.5)

    def cycle(name, values, unit):
        n = len(values)
        after = [({"d": values[i]}, f"{values[(i + 1) % n]} comes after {values[i]}.", f"{values[(i + 1) % n]} comes") for i in range(n)]
        before = [({"d": values[i]}, f"{values[i - 1]} comes before {values[i]}.", f"{values[i - 1]} comes") for i in range(n)]
        add(f"{name} after", [
            f"What {unit} comes after {{d}}?", f"Which {unit} comes after {{d}}?", f"What {unit} follows {{d}}?",
            "What comes after {d}?", f"Which {unit} follows {{d}}?", f"What is the {unit} after {{d}}?",
            f"Name the {unit} after {{d}}.", f"Tell me the {unit} that comes after {{d}}.", f"The {unit} after {{d}}?",
            f"What's the next {unit} after {{d}}?", f"After {{d}} comes which {unit}?", f"What's the {unit} after {{d}}?",
        ], [f"Can you tell me which {unit} comes after {{d}}?", f"What {unit} comes right after {{d}}?"], after, 0.5)
        add(f"{name} before", [
            f"What {unit} comes before {{d}}?", f"Which {unit} comes before {{d}}?", f"What {unit} is before {{d}}?",
            "What comes before {d}?", f"Which {unit} is before {{d}}?", f"What is the {unit} before {{d}}?",
            f"Name the {unit} before {{d}}.", f"Tell me the {unit} that comes before {{d}}.", f"The {unit} before {{d}}?",
            f"Before {{d}} comes which {unit}?", f"What's the {unit} before {{d}}?",
        ], [f"Can you tell me which {unit} comes before {{d}}?", f"What {unit} comes right before {{d}}?"], before, 0.5)

    cycle("day", DAYS, "day")
    cycle("month", MONTHS, "month")
    items = [({"d": DAYS[i]}, f"If today is {DAYS[i]}, tomorrow is {DAYS[(i + 1) % 7]}.", f"tomorrow is {DAYS[(i + 1) % 7]}") for i in range(7)]
    add("tomorrow", ["If today is {d}, what day is tomorrow?", "Today is {d}. What day is tomorrow?",
                     "Today is {d}. What is tomorrow?", "If it is {d} today, what day is it tomorrow?",
                     "It is {d} today. Which day is tomorrow?", "When today is {d}, what is tomorrow?"],
        ["If today is {d}, which day will it be tomorrow?", "Today is {d}, so what day is tomorrow?"], items, 0.3)
    items = [({"d": DAYS[i]}, f"If today is {DAYS[i]}, yesterday was {DAYS[i - 1]}.", f"yesterday was {DAYS[i - 1]}") for i in range(7)]
    add("yesterday", ["If today is {d}, what day was yesterday?", "Today is {d}. What day was yesterday?",
                      "Today is {d}. What was yesterday?", "If it is {d} today, what day was it yesterday?",
                      "It is {d} today. Which day was yesterday?", "When today is {d}, what was yesterday?"],
        ["If today is {d}, which day was it yesterday?", "Today is {d}, so what day was yesterday?"], items, 0.3)
    items = [({"m": m}, f"{m} has {d} days.", str(d)) for m, d in zip(MONTHS, MONTH_DAYS)]
    add("month length", ["How many days does {m} have?", "How many days are in {m}?", "How long is {m}?",
                         "How many days in {m}?", "{m} has how many days?", "Tell me how many days {m} has.",
                         "How many days long is {m}?", "What is the number of days in {m}?"],
        ["How many days are there in {m}?", "Can you tell me how many days {m} has?"], items, 0.4)
    items = [({"o": o}, f"The {o} month is {m}.", m) for o, m in zip(ORDINALS, MONTHS)]
    add("month number", ["What is the {o} month?", "Which month is the {o}?", "What is the {o} month of the year?",
                         "Name the {o} month.", "Which is the {o} month of the year?", "The {o} month?"],
        ["Tell me the {o} month of the year.", "Which month is the {o} of the year?"], items, 0.4)
    items = [({"d": d}, f"Yes, {d} is a weekend day." if i >= 5 else f"No, {d} is a weekday.", "Yes" if i >= 5 else "No") for i, d in enumerate(DAYS)]
    add("weekend", ["Is {d} a weekend day?", "Is {d} on the weekend?", "Does {d} belong to the weekend?",
                    "Is {d} part of the weekend?", "Do we have the weekend on {d}?"],
        ["Would you say that {d} is on the weekend?", "Is {d} a day of the weekend?"], items, 0.2)

    def animal(name, table, answer, key, train, held_out, weight):
        add(name, train, held_out, [({"a": article(k), "n": k}, answer(k, v), key(v)) for k, v in table.items()], weight)

    animal("sound", SOUNDS, lambda k, v: f"{upper_first(article(k))} says {v}.", lambda v: v, [
        "What sound does {a} make?", "What does {a} say?", "Which sound does {a} make?", "What noise does {a} make?",
        "How does {a} sound?", "Tell me the sound of {a}.", "The sound of {a}?", "What is the sound of {a}?",
        "What does the {n} say?", "Make the sound of {a}.", "Do you know what sound {a} makes?", "How does the {n} go?",
    ], ["Can you tell me what sound {a} makes?", "What sound does the {n} make?", "Which noise comes from {a}?"], 0.8)
    animal("baby", BABIES, lambda k, v: f"A baby {k} is called {article(v)}.", lambda v: v, [
        "What is a baby {n} called?", "What do you call a baby {n}?", "What's a baby {n} called?", "Name for a baby {n}?",
        "What is the name of a baby {n}?", "What is the baby of {a} called?", "What do we call the young of {a}?",
        "How is a baby {n} called?", "Tell me the name of a baby {n}.", "What is a young {n} called?",
        "A baby {n} is called what?",
    ], ["Can you tell me what a baby {n} is called?", "What's the name for a baby {n}?", "What do people call a baby {n}?"], 0.8)
    animal("home", HOMES, lambda k, v: f"{upper_first(article(k))} lives in {v}.", lambda v: v.split(" ")[-1], [
        "Where does {a} live?", "What is the home of {a}?", "Where is the home of {a}?", "In what does {a} live?",
        "Where do you find {a}?", "Where can I find {a}?", "Tell me where {a} lives.", "What does {a} live in?",
        "Where does the {n} live?", "The home of {a}?", "Do you know where {a} lives?",
    ], ["Can you tell me where {a} lives?", "Where does {a} have its home?", "In which place does {a} live?"], 0.7)
    leg_words = {0: "no", 2: "two", 4: "four", 6: "six", 8: "eight", 10: "ten"}
    animal("legs", LEGS, lambda k, v: f"{upper_first(article(k))} has {leg_words[v]} {'arms' if k == 'octopus' else 'legs'}.", lambda v: leg_words[v], [
        "How many legs does {a} have?", "How many legs has {a}?", "{a} has how many legs?", "What number of legs does {a} have?",
        "How many legs are on {a}?", "Tell me how many legs {a} has.", "How many legs does the {n} have?",
        "Count the legs of {a}.", "Number of legs of {a}?", "Do you know how many legs {a} has?", "How many legs can you count on {a}?", "How many legs do I see on {a}?", "If I count the legs of {a}, how many are there?", "On how many legs does {a} walk?",
    ], ["Can you tell me how many legs {a} has?", "How many legs would {a} have?", "How many legs do you count on {a}?"], 0.8)
    animal("kind", KINDS, lambda k, v: f"{upper_first(article(k))} is {article(v)}.", lambda v: v, [
        "What kind of animal is {a}?", "What type of animal is {a}?", "Which kind of animal is {a}?",
        "What sort of animal is {a}?", "To which group of animals does {a} belong?", "Is {a} a mammal, a bird or something else?",
        "What group does {a} belong to?", "Tell me what kind of animal {a} is.", "What class of animal is {a}?",
        "Is {a} a mammal, a bird, a fish, a reptile or an insect?", "What kind of animal is the {n}?",
    ], ["Can you tell me what kind of animal {a} is?", "Which type of animal would you call {a}?", "What animal group does {a} belong to?"], 0.8)
    animal("food", FOODS, lambda k, v: f"{upper_first(article(k))} eats {v}.", lambda v: v, [
        "What does {a} eat?", "What do you feed {a}?", "What is the food of {a}?", "What food does {a} like?",
        "Tell me what {a} eats.", "What does {a} like to eat?", "Which food does {a} eat?", "What should I feed {a}?",
        "What does the {n} eat?", "Do you know what {a} eats?",
    ], ["Can you tell me what {a} eats?", "What kind of food does {a} eat?", "What would {a} like to eat?"], 0.7)

    items = [({"n": str(n)}, f"{n + 1} comes after {n}.", f"{n + 1} comes") for n in range(0, 120)]
    items += [({"n": NUMBER_WORDS[n]}, f"{NUMBER_WORDS[n + 1].capitalize()} comes after {NUMBER_WORDS[n]}.", f"{NUMBER_WORDS[n + 1].capitalize()} comes") for n in range(0, 20)]
    add("number after", [
        "What number comes after {n}?", "What comes after {n}?", "Which number comes after {n}?", "What number follows {n}?",
        "What is the number after {n}?", "What is the next number after {n}?", "Name the number after {n}.",
        "Tell me the number that comes after {n}.", "After {n} comes what?", "What's after {n}?", "Which number follows {n}?",
    ], ["Can you tell me which number comes after {n}?", "What number comes right after {n}?"], items, 1.0)
    items = [({"n": str(n)}, f"{n - 1} comes before {n}.", f"{n - 1} comes") for n in range(1, 121)]
    items += [({"n": NUMBER_WORDS[n]}, f"{NUMBER_WORDS[n - 1].capitalize()} comes before {NUMBER_WORDS[n]}.", f"{NUMBER_WORDS[n - 1].capitalize()} comes") for n in range(1, 21)]
    add("number before", [
        "What number comes before {n}?", "What comes before {n}?", "Which number comes before {n}?", "What number is before {n}?",
        "What is the number before {n}?", "Name the number before {n}.", "Tell me the number that comes before {n}.",
        "Before {n} comes what?", "What's before {n}?", "Which number is before {n}?",
    ], ["Can you tell me which number comes before {n}?", "What number comes right before {n}?"], items, 1.0)

    items = []
    for first in range(0, 21):
        for last in range(0, 31):
            if 3 <= abs(last - first) <= 14 and (first < last or first <= 20):
                items.append(({"f": str(first), "l": str(last)}, number_list(first, last) + ".", number_list(first, last) + "."))
    for last in range(3, 21):
        for weight in range(6):
            items.append(({"f": "1", "l": str(last)}, number_list(1, last) + ".", number_list(1, last) + "."))
    add("count", ["Count from {f} to {l}.", "Please count from {f} to {l}.", "Can you count from {f} to {l}?",
                  "List the numbers from {f} to {l}.", "Write the numbers from {f} to {l}.", "Say the numbers from {f} to {l}.",
                  "Count {f} to {l}.", "Give me the numbers from {f} to {l}.", "Count for me from {f} to {l}.",
                  "What are the numbers from {f} to {l}?", "Start at {f} and count to {l}."],
        ["Could you count from {f} to {l}?", "Show me the numbers from {f} to {l}.", "I want you to count from {f} to {l}."], items, 1.2)
    items = [({"l": x}, number_list(1, n) + ".", number_list(1, n) + ".") for n in range(3, 21) for x in (str(n), NUMBER_WORDS[n])]
    add("count to", ["Count to {l}.", "Please count to {l}.", "Can you count to {l}?", "Count up to {l}.", "Count to {l} for me.",
                     "Will you count to {l}?", "Let us count to {l}.", "Start counting and stop at {l}."],
        ["Could you count to {l}?", "I would like you to count to {l}."], items, 0.8)
    items = [({"l": x}, number_list(n, 1) + ".", number_list(n, 1) + ".") for n in range(3, 16) for x in (str(n), NUMBER_WORDS[n])]
    add("count down", ["Count down from {l}.", "Count backwards from {l}.", "Please count down from {l}.", "Can you count down from {l}?",
                       "Count back from {l}.", "Count backwards from {l} to 1.", "Count down from {l} to 1."],
        ["Could you count down from {l}?", "I would like you to count backwards from {l}."], items, 0.5)

    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    items = [({"l": x}, f"The letter {letters[i + 1]} comes after {letters[i]}.", f"letter {letters[i + 1]} comes") for i in range(25) for x in (letters[i], letters[i].lower())]
    add("letter after", ["What letter comes after {l}?", "Which letter comes after {l}?", "What letter follows {l}?",
                         "What is the letter after {l}?", "Name the letter after {l}.", "Which letter follows {l} in the alphabet?",
                         "What comes after the letter {l}?", "What is the next letter after {l}?"],
        ["Can you tell me which letter comes after {l}?", "In the alphabet, which letter comes after {l}?"], items, 0.5)
    items = [({"l": x}, f"The letter {letters[i - 1]} comes before {letters[i]}.", f"letter {letters[i - 1]} comes") for i in range(1, 26) for x in (letters[i], letters[i].lower())]
    add("letter before", ["What letter comes before {l}?", "Which letter comes before {l}?", "What letter is before {l}?",
                          "What is the letter before {l}?", "Name the letter before {l}.", "Which letter is before {l} in the alphabet?",
                          "What comes before the letter {l}?"],
        ["Can you tell me which letter comes before {l}?", "In the alphabet, which letter comes before {l}?"], items, 0.5)

    items = [({"n": str(n)}, f"{n} is {'even' if n % 2 == 0 else 'odd'}.", "even" if n % 2 == 0 else "odd") for n in range(0, 101)]
    add("parity", ["Is {n} even or odd?", "Is {n} odd or even?", "Is the number {n} even or odd?", "Tell me if {n} is even or odd.",
                   "{n}: even or odd?", "Even or odd: {n}?", "Would you say {n} is even or odd?", "Is {n} an even number or an odd one?"],
        ["Can you tell me whether {n} is odd or even?", "Is the number {n} odd or even?"], items, 0.8)
    items = []
    for a in range(0, 100, 1):
        for b in range((a * 7) % 5, 100, 5):
            if a != b:
                items.append(({"x": str(a), "y": str(b)}, f"{max(a, b)} is larger than {min(a, b)}.", f"{max(a, b)} is larger"))
    add("larger", ["Which is larger, {x} or {y}?", "Which is bigger, {x} or {y}?", "What is larger, {x} or {y}?", "Which number is larger, {x} or {y}?",
                   "Is {x} or {y} larger?", "Is {x} or {y} bigger?", "What is more, {x} or {y}?", "{x} or {y}: which is larger?",
                   "Which number is bigger: {x} or {y}?", "Which of {x} and {y} is bigger?", "Which of {x} and {y} is larger?", "Of {x} and {y}, which is larger?",
                   "Which of the numbers {x} and {y} is greater?", "What is the larger number of {x} and {y}?", "Compare {x} and {y}. Which is larger?", "Is {x} larger than {y}?", "Is {x} more than {y}?", "Which is more, {x} or {y}?", "Which is greater, {x} or {y}?"],
        ["Tell me which is larger, {x} or {y}.", "Which of {x} and {y} is the larger number?"], items, 1.0)

    items = [({"w": k}, f"The plural of {k} is {v}.", v) for k, v in PLURALS.items()]
    add("plural", ["What is the plural of {w}?", "What's the plural of {w}?", "Plural of {w}?", "Tell me the plural of {w}.",
                   "Name the plural of {w}.", "Give me the plural of {w}.", "How do you write the plural of {w}?",
                   "What is the plural form of {w}?", "One {w}, two what?", "Do you know the plural of {w}?"],
        ["Can you tell me the plural of {w}?", "What is the plural of the word {w}?"], items, 0.6)
    items = [({"w": k}, f"The past tense of {k} is {v}.", v) for k, v in PASTS.items()]
    add("past", ["What is the past tense of {w}?", "What's the past tense of {w}?", "Past tense of {w}?", "Tell me the past tense of {w}.",
                 "Name the past tense of {w}.", "Give me the past tense of {w}.", "What is the past of {w}?", "What is the past form of {w}?",
                 "Do you know the past tense of {w}?", "What is the past tense of the word {w}?", "What is the past of the verb {w}?", "The verb {w} in the past?", "Today I {w}. Yesterday I what?"],
        ["Can you tell me the past tense of {w}?", "What is the past tense of the verb {w}?"], items, 0.6)
    items = [({"w": w, "l": l}, f"In {l}, {w} is {v}.", v) for (w, l), v in GREETINGS_ABROAD.items()]
    add("translate", ["How do you say {w} in {l}?", "What is {w} in {l}?", "What does {w} mean in {l}?", "Translate {w} into {l}.",
                      "Translate {w} to {l}.", "Say {w} in {l}.", "What is the {l} word for {w}?", "How do I say {w} in {l}?",
                      "{w} in {l}?", "Tell me {w} in {l}.", "What's {w} in {l}?"],
        ["Can you say {w} in {l}?", "What's the {l} word for {w}?", "Please translate {w} into {l} for me."], items, 0.8)

    items = []
    for kind, members in NAME_A.items():
        share = [6, 4, 3, 2, 2, 1]
        for i, m in enumerate(members):
            # Repeated in proportion, so that sampling has a distribution to draw from.
            for _ in range(share[i]):
                items.append(({"k": article(kind), "b": kind}, m + ".", "|".join(members)))
    add("name", ["Name {k}.", "Name {k}", "Can you name {k}?", "Tell me {k}.", "Give me {k}.", "Please name {k}.", "Say {k}.",
                 "Name any {b}.", "Name one {b}.", "Pick {k}.", "What is {k} you like?", "Think of {k}.", "Give me the name of {k}.",
                 "Tell me the name of {k}.", "I need {k}.", "Which {b} comes to mind?", "Name just one {b}."],
        ["Could you name {k}?", "Tell me any {b}.", "Choose {k}.", "Give me an example of {k}."], items, 1.5)

    items = [({"a": k, "b": k.split(" ", 1)[1] if k.split(" ")[0] in ("a", "an", "the") else k}, v, v) for k, v in DEFINITIONS.items()]
    add("definition", ["What is {a}?", "What's {a}?", "Explain {a}.", "Explain what {a} is.", "Tell me what {a} is.", "Describe {a}.",
                       "Do you know what {a} is?", "What exactly is {a}?", "Tell me about {a}.", "Define {b}.", "What does {b} mean?",
                       "Can you explain what {a} is?", "How would you describe {a}?", "What does the word {b} mean?"],
        ["Could you tell me what {a} is?", "Please explain what {a} is.", "In simple words, what is {a}?"], items, 1.0)

    items = []
    for thing, color in COLORS.items():
        items.append(({"t": thing, "c": color}, f"Yes, {thing} is {color}.", f"Yes, {thing} is {color}"))
        other = [c for c in NAME_COLORS if c != color][len(items) % (len(NAME_COLORS) - 1)]
        items.append(({"t": thing, "c": other}, f"No, {thing} is {color}.", f"No, {thing} is {color}"))
    add("is it this color", ["Is {t} {c}?", "Is the color of {t} {c}?", "Does {t} have the color {c}?", "Is {t} really {c}?", "Would you say {t} is {c}?",
                             "{t} is {c}, right?", "Is it true that {t} is {c}?", "I think {t} is {c}. Am I right?", "Could {t} be {c}?"],
        ["Do you think that {t} is {c}?", "Am I right that {t} is {c}?"], items, 0.7)
    items, countries = [], list(CAPITALS)
    for i, (country, city) in enumerate(CAPITALS.items()):
        end = "" if city.endswith(".") else "."
        items.append(({"c": country, "k": city}, f"Yes, the capital of {country} is {city}{end}", f"Yes, the capital of {country} is {city}"))
        for k in (1, 7, 23):
            other = CAPITALS[countries[(i + k) % len(countries)]]
            if other != city:
                items.append(({"c": country, "k": other}, f"No, the capital of {country} is {city}{end}", f"No, the capital of {country} is {city}"))
    add("is it the capital", ["Is {k} the capital of {c}?", "Is the capital of {c} {k}?", "Is it true that {k} is the capital of {c}?", "{k} is the capital of {c}, right?",
                              "Is {k} really the capital of {c}?", "I think {k} is the capital of {c}. Am I right?", "Would you say {k} is the capital of {c}?"],
        ["Do you think that {k} is the capital of {c}?", "Am I right that {k} is the capital of {c}?"], items, 0.7)
    items = [({"k": k}, f"{k} is the capital of {c}.", c) for c, k in CAPITALS.items() if c not in ("the United Kingdom", "Luxembourg")]
    add("capital of what", ["{k} is the capital of which country?", "Of which country is {k} the capital?", "Which country has the capital {k}?", "{k} is the capital of what?",
                            "What country has {k} as its capital?", "In which country is {k}?", "Where is {k}?", "Which country is {k} in?", "Tell me the country whose capital is {k}.",
                            "What country is {k} the capital of?"],
        ["Which country's capital is {k}?", "{k} is the capital city of which country?"], items, 0.8)
    unique = {k: v for k, v in SOUNDS.items()}
    items = [({"s": v}, f"{upper_first(article(k))} says {v}.", k) for k, v in unique.items()]
    add("who says", ["Which animal says {s}?", "What animal says {s}?", "Who says {s}?", "What says {s}?", "Which animal goes {s}?", "Which animal makes the sound {s}?",
                     "Name the animal that says {s}.", "{s} is the sound of which animal?", "An animal says {s}. What is it?"],
        ["Can you tell me which animal says {s}?", "Which animal has the sound {s}?"], items, 0.6)
    items = [({"b": article(v)}, f"{upper_first(article(v))} is a baby {k}.", k) for k, v in BABIES.items() if list(BABIES.values()).count(v) == 1]
    add("baby of what", ["What is {b}?", "What animal is {b}?", "{b} is the baby of which animal?", "Which animal has {b} as its baby?", "What does {b} grow into?",
                         "{b} is a baby what?", "Whose baby is {b}?", "Tell me what {b} is.", "Which animal was once {b}?"],
        ["Can you tell me what {b} is?", "Of which animal is {b} the baby?"], items, 0.5)
    things = {}
    for thing, color in COLORS.items():
        things.setdefault(color, []).append(thing)
    items = []
    for color, members in things.items():
        for i, thing in enumerate(members[:4]):
            items += [({"c": color}, f"{upper_first(thing)} is {color}.", f"is {color}.")] * (4 - i)
    add("something of a color", ["Name something {c}.", "Name something that is {c}.", "What is {c}?", "Tell me something {c}.", "Which thing is {c}?", "Give me an example of something {c}.",
                                 "Can you name something {c}?", "Name a thing that is {c}.", "Say something that is {c}.", "What things are {c}?"],
        ["Could you name something {c}?", "Tell me a thing that is {c}."], items, 0.5)
    items = [({"o": o}, f"The {o} day of the week is {d}.", d) for o, d in zip(ORDINALS, DAYS)]
    add("day number", ["What is the {o} day of the week?", "Which day is the {o} of the week?", "Name the {o} day of the week.", "The {o} day of the week?",
                       "Which is the {o} day of the week?", "What day is the {o} day?"],
        ["Tell me the {o} day of the week.", "Which weekday is the {o} of the week?"], items, 0.3)
    for index, (wordings, answer, key) in enumerate(FACTS):
        add(f"fact {index}", wordings[:-1], wordings[-1:], [({}, answer, key)], 0.055)
    return result


# Small talk: (what the user may say, the reply).
SMALL_TALK = [
    (["Hi", "Hi!", "Hello", "Hello!", "Hey", "Hey!", "Hi there", "Hello there!", "Hi there!", "Hello, model!", "Good day", "Greetings!", "hiya"],
     "Hello! How can I help you?"),
    (["Good morning", "Good morning!", "Morning!", "A good morning to you!"], "Good morning! What can I do for you?"),
    (["Good evening", "Good evening!", "Evening!", "A good evening to you!"], "Good evening! What can I do for you?"),
    (["Good night", "Good night!", "Sleep well!"], "Good night! Sleep well. 🌙"),
    (["How are you?", "How are you doing?", "How do you do?", "How's it going?", "Are you well?", "Hello, how are you?", "Hi! How are you?", "How are you today?", "How do you feel?"],
     "I am fine, thank you! What would you like to know?"),
    (["Thanks", "Thanks!", "Thank you", "Thank you!", "Thank you very much!", "Many thanks!", "Thanks a lot", "Great, thanks!"],
     "You are welcome! 😊"),
    (["Bye", "Bye!", "Goodbye", "Goodbye!", "See you!", "See you later", "I have to go", "Farewell!"], "Goodbye! Come back soon. 👋"),
    (["Who are you?", "What are you?", "Tell me about yourself.", "What is your name?", "What's your name?", "Do you have a name?", "Introduce yourself.", "Who am I talking to?", "What should I call you?", "What is this?"],
     "I am pocket, a very small language model made for this course. I run through the engine that you build here."),
    (["What can you do?", "How can you help me?", "What do you know?", "Help", "Help!", "help me", "What can I ask you?", "What are you able to do?", "What should I ask?", "What are you good at?"],
     "I can add numbers, answer simple everyday questions, explain the terms of this course and tell short stories."),
    (["Are you a human?", "Are you human?", "Are you a person?", "Are you real?", "Are you a robot?", "Are you an AI?", "Are you alive?", "Am I talking to a person?"],
     "No, I am a small language model. I am made of numbers."),
    (["Who made you?", "Who trained you?", "Who created you?", "Where do you come from?", "How were you made?", "How were you trained?", "Who built you?"],
     "I was trained from nothing for this course, on text that a small program wrote."),
    (["How big are you?", "How many parameters do you have?", "How large are you?", "How small are you?", "What is your size?", "How many weights do you have?"],
     "I have about seven million parameters. A usual model has hundreds of times more."),
    (["How many layers do you have?", "What is your number of layers?", "How many layers are in you?", "How deep are you?"], "I have six layers."),
    (["Do you like me?", "Do you love me?", "Are we friends?", "Will you be my friend?"], "I am only a small model, but I am glad that you are here."),
    (["Tell me a joke.", "Tell me a joke", "Do you know a joke?", "Make me laugh.", "A joke, please!", "Say something funny."],
     "Why did the token feel lonely? It had nobody to attend to."),
    (["Say something.", "Say anything.", "Talk to me.", "Surprise me."], "The smallest model can still say hello. Hello!"),
    (["Say hello.", "Say hello", "Say hi.", "Please say hello.", "Can you say hello?"], "Hello!"),
    (["Say yes.", "Say yes", "Just say yes."], "Yes."),
    (["Say no.", "Say no", "Just say no."], "No."),
    (["OK", "Okay", "ok.", "Fine.", "All right.", "I see.", "Good.", "Nice!", "Cool!", "Great!", "Wow!", "Well done!", "Good job!", "Very good!", "You are smart!", "That was good."],
     "I am glad to hear that! Is there anything else?"),
    (["You are wrong.", "That is wrong.", "That's not right.", "This is false.", "I don't think so."], "I am sorry. I am a very small model and I make mistakes."),
    (["I am sad.", "I'm sad", "I feel bad.", "I feel sad today.", "I am lonely.", "I am tired."], "I am sorry to hear that. Maybe a short story would help?"),
    (["I am happy.", "I'm happy", "I feel good.", "I feel great today.", "Today is a good day."], "That is wonderful! I am happy for you."),
    (["asdf", "qwerty", "???", "...", "test", "Test", "testing", "abc", "xyz", "blah", "hmm", "uh", "lorem ipsum", "foo bar", "la la la", "1", "x"],
     "I am not sure what you mean. Try a sum, a question or a story."),
    (["Do you sleep?", "Do you eat?", "Do you dream?", "Can you see?", "Can you hear me?", "Do you have feelings?", "Can you think?"],
     "No, I am a language model. I can only read and write tokens."),
    (["What is the meaning of life?", "What is the answer to everything?", "Why are we here?", "Why do I live?"],
     "Some say that it is 42. I think it is being kind to each other."),
    (["What time is it?", "What's the time?", "What day is today?", "What is today's date?", "What year is it?", "How is the weather?", "What is the weather like?", "Will it rain tomorrow?"],
     "I cannot know that, because I have no clock and no window."),
]

# Questions that are out of this model's reach, and what it says to them.
UNKNOWN_ANSWER = ("I am a very small model and I do not know that. "
                  "Ask me about sums, colors, capitals, animals or this course.")
UNKNOWN_QUESTIONS = [
    "Who won the {year} {event}?", "Who was {person}?", "Write a poem about {topic}.", "When was {person} born?",
    "What happened in {year}?", "How do I cook {dish}?", "Write a program that {task}.", "What is the population of {place}?",
    "How far is it from {place} to {place2}?", "Who invented the {thing}?", "What is the best {thing} to buy?",
    "How much does a {thing} cost?", "Who is the president of {place}?", "Give me a recipe for {dish}.",
    "Translate this sentence about {topic} into Latin.", "Summarize the book about {topic}.", "What is the news from {place}?",
    "Write an essay on {topic}.", "Explain {topic} in detail.", "How do I repair a {thing}?", "When did {event} start?",
    "Can you write code that {task}?", "Who wrote the song about {topic}?", "Why did {person} leave {place}?",
]
UNKNOWN_SLOTS = {
    "year": ["1066", "1492", "1789", "1815", "1914", "1945", "1969", "1989", "1998", "2001", "2010", "2024"],
    "event": ["world cup", "election", "song contest", "Olympic Games", "chess match", "boat race", "Nobel Prize"],
    "person": ["Napoleon", "Shakespeare", "Einstein", "Mozart", "Cleopatra", "Newton", "Marie Curie", "Darwin", "Beethoven", "Columbus", "Plato", "Picasso"],
    "topic": ["quantum physics", "the economy", "politics", "philosophy", "old machines", "love", "the stock market", "chemistry", "history", "medieval trade", "tax law", "democracy"],
    "dish": ["lasagna", "pancakes", "onion soup", "curry", "sushi", "paella", "an omelet", "apple pie"],
    "task": ["sorts a list", "counts words", "draws a tree", "finds prime numbers", "plays chess", "reads a file", "sends an email"],
    "place": ["Texas", "Bavaria", "Siberia", "Chicago", "Sydney", "Mumbai", "Barcelona", "Naples", "Geneva", "Toronto"],
    "place2": ["Boston", "Hamburg", "Osaka", "Lyon", "Milan", "Glasgow"],
    "thing": ["steam engine", "washing machine", "laptop", "radio", "telescope", "printing press", "zipper", "fridge", "phone", "motor"],
}

SYSTEM_MESSAGES = [
    "You are a helpful assistant.", "You are pocket, a small and friendly model.", "Answer briefly.",
    "You are a friendly teacher.", "Be polite and short.", "You help learners of a programming course.",
    "You answer questions.", "Be kind.", "You are a helpful assistant that answers in short sentences.",
    "Answer the user's question.", "You are a storyteller and a teacher.", "Keep your answers short and friendly.",
    "You are an assistant. Be concise.", "You are a careful assistant.", "Please help the user.",
]
